-- reclaim: end the claims of workers that have departed: back in line, or dead, or cancelled.
-- index: jobs_pkey, departed_pkey (and reads the jobs from end to end: running ones are in no index)
-- locks: the departed workers' rows and the reclaimed rows, skipping locked ones; then that worker stays departed
-- run by: worker upkeep, take
with lost as (
    select worker_id from pgqueue.departed where worker_id = any(%(workers)s::uuid[]) for update skip locked
),
left_behind as materialized (
    select id, worker_id from pgqueue.jobs where status = 'running' and worker_id = any(%(workers)s::uuid[])
),
held as (
    select job.id, job.attempts < job.max_attempts as again, job.cancel_requested, clock.now,
           jsonb_build_array(jsonb_build_object(
               'attempt', job.attempts, 'at', clock.now, 'type', 'WorkerLost',
               'message', 'worker ' || job.worker_id || ' stopped renewing its lease', 'traceback', null)) as error
    from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock, left_behind
    cross join lateral (
        select id, attempts, max_attempts, cancel_requested, worker_id from pgqueue.jobs
        where id = left_behind.id and status = 'running' and worker_id = left_behind.worker_id
        for update skip locked
    ) as job
    where left_behind.worker_id in (select worker_id from lost)
),
returned as (
    update pgqueue.jobs as job
    set status = 'ready', worker_id = null, claimed_at = null, errors = coalesce(job.errors, '[]') || held.error
    from held
    where job.id = held.id and held.again and not held.cancel_requested
    returning job.id, 'ready' as state
),
gone as (
    delete from pgqueue.jobs as job using held
    where job.id = held.id and (held.cancel_requested or not held.again)
    returning job.*, held.error, held.now
),
buried as (
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors)
    select id, run_at, created_at, claimed_at, now, worker_id, collisions, priority,
           attempts, max_attempts, 'exhausted', queue, task, unique_key, args, coalesce(errors, '[]') || error
    from gone where not cancel_requested
    returning id, 'dead' as state
),
cancelled as (
    insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority,
                                     attempts, max_attempts, outcome, queue, task, unique_key, args, errors)
    select id, run_at, created_at, claimed_at, now, worker_id, collisions, priority,
           attempts, max_attempts, 'cancelled', queue, task, unique_key, args, coalesce(errors, '[]') || error
    from gone where cancel_requested
    returning id, 'cancelled' as state
),
seen_to as (
    delete from pgqueue.departed as one using lost
    where one.worker_id = lost.worker_id and not exists (
        select from left_behind where left_behind.worker_id = one.worker_id and left_behind.id not in (select id from held))
)
select id, state from returned union all select id, state from buried union all select id, state from cancelled
