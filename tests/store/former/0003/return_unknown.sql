-- return_unknown: put jobs whose task the worker does not know back for later; dead as unknown where that has gone on for too long.
-- index: jobs_pkey
-- locks: the returned and the buried rows
-- run by: worker completer
-- why: a job is given up only where no other live worker that serves its queue may know the task. No join: see put_back
with clock as (
    select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now
),
held as (
    select job.id, job.queue, job.task,
           job.unknown_since <= clock.now - %(unknown_after)s::interval as is_overdue
    from pgqueue.jobs as job cross join clock
    where job.id = any(%(ids)s::bigint[]) and job.worker_id = %(worker)s::uuid and job.status = 'running'
          and job.claims = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(job.id, %(ids)s::bigint[])])
          and not job.cancel_requested
    for update of job
),
given_up as (
    select held.id from held cross join clock
    where held.is_overdue and not exists (
        select from pgqueue.workers as other
        where other.id <> %(worker)s::uuid and other.lease_until > clock.now
              and (other.tasks is null or held.task = any(other.tasks))
              and (other.queues is null or held.queue = any(other.queues)))
),
returned as (
    update pgqueue.jobs as job
    set status = 'scheduled', run_at = (select now from clock) + %(delay)s::interval, attempts = job.attempts - 1,
        worker_id = null, claimed_at = null, unknown_since = coalesce(job.unknown_since, (select now from clock))
    where job.id = any(array(select id from held where id not in (select id from given_up)))
    returning job.id
),
gone as (
    delete from pgqueue.jobs where id = any(array(select id from given_up))
    returning *
),
buried as (
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors)
    select id, run_at, created_at, null, clock.now, worker_id, collisions, priority, attempts, max_attempts, 'unknown', queue, task,
           unique_key, pgqueue.as_jsonb(args),
           pgqueue.with_error(errors, pg_catalog.jsonb_build_object('attempt', attempts, 'type', 'UnknownTask', 'traceback', null,
               'message', 'no worker that serves queue ' || queue || ' has known task ' || task || ' since ' || unknown_since),
               clock.now)
    from gone cross join clock
    returning id
)
select id from returned union all select id from buried
