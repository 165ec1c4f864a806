-- insight/why_locked: which session keeps a job locked, by which application, and for how many seconds its transaction has been open.
-- index: jobs_pkey
-- locks: none
-- run by: PgQueue.why, of a job that waits and that nothing else keeps from its start
-- rights: reader
-- why: a claim skips locked jobs. xmax is the transaction that locked or changed the row last; while that is open, it holds
--      the lock of its own id. A savepoint that was released has an id of its own, and no lock of it: if that id is in progress,
--      it belongs to an older transaction that uses the table, and is found if there is one only, and no prepared transaction,
--      which may be the one. pg_xact_status takes ids of 64 bits, and raises an error for one of the future. Of a row that several transactions lock at once xmax is a number of
--      another kind, which a transaction that never used the table may have, too. Nothing is found of such a row, nor of a
--      prepared transaction. A role that may not read others' activity sees no start of their transactions
select one.pid, session.application_name, extract(epoch from clock_timestamp() - session.xact_start)::float8
from pgqueue.jobs as job
cross join lateral (
    select held.pid, held.transactionid = job.xmax as itself, count(*) over () as found
    from pg_locks as held, (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax) as latest
    where held.locktype = 'transactionid' and held.granted
      and exists (select from pg_locks as used
                  where used.pid = held.pid and used.locktype = 'relation' and used.relation = 'pgqueue.jobs'::regclass
                    and used.database = (select oid from pg_database where datname = current_database())
                    and used.mode in ('RowShareLock', 'RowExclusiveLock'))
      and (held.transactionid = job.xmax
           or case when age(job.xmax) between 1 and age(held.transactionid)
                        and not exists (select from pg_prepared_xacts where database = current_database())
                   then pg_xact_status(greatest(0, latest.xmax + 2147483648 - (
                       (latest.xmax - job.xmax::text::bigint + 2147483648) & 4294967295))::text::xid8) = 'in progress' end)
    order by itself desc
    limit 1
) as one
left join pg_stat_activity as session on session.pid = one.pid
where job.id = %(id)s::bigint and (one.itself or one.found = 1)
