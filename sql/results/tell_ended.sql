-- results/tell_ended: tell programs that wait for jobs that these have ended.
-- index: none
-- locks: the database-wide NOTIFY lock, at commit
-- run by: worker completer, worker upkeep, take, PgQueue.cancel
select pg_notify('pgqueue.ended', %(ids)s::text)
