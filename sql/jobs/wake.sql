-- jobs/wake: tell sleeping workers to look again.
-- index: none
-- locks: the database-wide NOTIFY lock, at commit
-- run by: worker upkeep, PgQueue.retry, QueueControl.resume
-- rights: monitor
select pg_notify('pgqueue.wake', '')
where exists (select from pgqueue.workers where idle)
