-- why_locked: which session keeps a job locked, by which application, and for how many seconds its transaction has been open.
-- index: jobs_pkey
-- locks: none
-- run by: PgQueue.why, of a job that waits and that nothing else keeps from its start
-- why: a claim skips locked jobs. xmax is the transaction that locked or changed the row last; while that is open, it holds
--      the lock of its own id. Of a row that several transactions lock at once xmax is a number of another kind, which a
--      transaction that never used the table may have, too: so the session must hold a lock of the table. Nothing is found of
--      such a row, of a lock that was taken in a savepoint and of a prepared transaction. A role that may not read others'
--      activity sees no start of their transactions
select held.pid, session.application_name, extract(epoch from clock_timestamp() - session.xact_start)::float8
from pgqueue.jobs as job
join pg_locks as held on held.locktype = 'transactionid' and held.granted and held.transactionid = job.xmax
left join pg_stat_activity as session on session.pid = held.pid
where job.id = %(id)s::bigint
  and exists (select from pg_locks as used
              where used.pid = held.pid and used.locktype = 'relation' and used.relation = 'pgqueue.jobs'::regclass)
