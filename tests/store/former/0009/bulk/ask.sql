-- bulk/ask: ask the workers of running jobs that are locked to stop them.
-- index: jobs_pkey
-- locks: those rows; the database-wide NOTIFY lock, at commit
-- run by: QueueControl.jobs
with asked as (
    update pgqueue.jobs set cancel_requested = true where id = any(%(ids)s::bigint[]) and status = 'running' returning id
)
select pg_catalog.pg_notify('pgqueue.wake', 'cancel') where exists (select from asked)
