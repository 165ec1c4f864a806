-- reclaim: end the claims of workers that are not on the list: back in line, or dead, or cancelled.
-- index: jobs_running, workers_pkey
-- locks: the reclaimed rows, skipping locked ones
-- run by: worker upkeep, take
with recursive holder as (  -- the workers that running jobs name, found by skipping through the index
    (select worker_id from pgqueue.jobs where status = 'running' order by worker_id limit 1)
    union all
    select (select job.worker_id from pgqueue.jobs as job
            where job.status = 'running' and job.worker_id > holder.worker_id
            order by job.worker_id limit 1)
    from holder where holder.worker_id is not null
),
lost as (
    select job.id, job.attempts < job.max_attempts as again, job.cancel_requested, clock.now,
           jsonb_build_array(jsonb_build_object(
               'attempt', job.attempts, 'at', clock.now, 'type', 'WorkerLost',
               'message', 'worker ' || job.worker_id || ' stopped renewing its lease', 'traceback', null)) as error
    from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock, holder
    cross join lateral (
        select id, attempts, max_attempts, cancel_requested, worker_id from pgqueue.jobs
        where status = 'running' and worker_id = holder.worker_id
        for update skip locked
    ) as job
    where not exists (select from pgqueue.workers where id = holder.worker_id)
),
returned as (
    update pgqueue.jobs as job
    set status = 'ready', worker_id = null, claimed_at = null, errors = coalesce(job.errors, '[]') || lost.error
    from lost
    where job.id = lost.id and lost.again and not lost.cancel_requested
    returning job.id, 'ready' as state
),
gone as (
    delete from pgqueue.jobs as job using lost
    where job.id = lost.id and (lost.cancel_requested or not lost.again)
    returning job.*, lost.error, lost.now
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
)
select id, state from returned union all select id, state from buried union all select id, state from cancelled
