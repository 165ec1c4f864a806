-- cancel: end a waiting job as cancelled, or ask its worker to if it runs; no row: there is no live job of this id.
-- index: jobs_pkey
-- locks: that job's row; where the job runs, the database-wide NOTIFY lock, at commit
-- run by: JobHandle.cancel, PgQueue.cancel
with target as (
    select id, status from pgqueue.jobs where id = %(id)s::bigint for update
),
asked as (
    update pgqueue.jobs as job set cancel_requested = true
    from target where job.id = target.id and target.status = 'running'
    returning job.id, 'running' as state
),
gone as (
    delete from pgqueue.jobs as job using target
    where job.id = target.id and target.status <> 'running'
    returning job.*
),
cancelled as (
    insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority,
                                     attempts, max_attempts, outcome, queue, task, unique_key, args, errors)
    select id, run_at, created_at, null, coalesce(%(now)s::timestamptz, clock_timestamp()), null, collisions, priority,
           attempts, max_attempts, 'cancelled', queue, task, unique_key, args, errors
    from gone
    returning id, 'cancelled' as state
)
select state from asked cross join lateral pg_catalog.pg_notify('pgqueue.wake', 'cancel') as told
union all select state from cancelled
