-- why_locked: which session keeps a job locked, by which application, and for how many seconds its transaction has been open.
-- index: jobs_pkey
-- locks: none
-- run by: PgQueue.why, of a job that waits and that nothing else keeps from its start
-- why: a claim skips locked jobs. xmax is the transaction that locked or changed the row last; while that is open, it holds
--      the lock of its own id. Of a row that several transactions lock at once xmax is another number, and nothing is found.
--      A role that may not read others' activity sees no start of their transactions
select held.pid, session.application_name, extract(epoch from clock_timestamp() - session.xact_start)::float8
from pgqueue.jobs as job
join pg_locks as held on held.locktype = 'transactionid' and held.granted and held.transactionid = job.xmax
left join pg_stat_activity as session on session.pid = held.pid
where job.id = %(id)s::bigint
