-- jobs/requeue: return attempts' jobs to the line or the calendar; a missing id: no longer held, asked to cancel, or given up.
-- index: jobs_pkey, unknown_tasks_pkey
-- locks: the returned rows; the NOTIFY lock, at commit, while a worker is idle that is to be told
-- run by: worker completer, worker upkeep, take
-- why: no join, as in end. What is missing here is for end to decide. A job is given up once it has been due, and no live
--      worker has known its task, for as long as unknown_afters says. Without a delay a job keeps its run_at, and so its place
with returned as (
    update pgqueue.jobs as job
    set (status, run_at, attempts, worker_id, claimed_at, errors) = (
        select case when ended.delay > 0 then 'scheduled' else 'ready' end,
               case when ended.delay is null then job.run_at else clock.now + pg_catalog.make_interval(secs => ended.delay) end,
               job.attempts - ended.refund, null::uuid, null::timestamptz,
               case when ended.error is null then job.errors
                    else pgqueue.with_error(job.errors, ended.error::jsonb, clock.now) end
        from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock,
             (select pg_catalog.width_bucket(job.id, %(ids)s::bigint[]) as place) as found,
             lateral (select (%(delays)s::float8[])[place] as delay, (%(refunds)s::smallint[])[place] as refund,
                             (%(errors)s::text[])[place] as error) as ended
    )
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
          and fence = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
          and not cancel_requested
          and (%(unknown_afters)s::float8[] is null or not exists (
                   select from pgqueue.unknown_tasks as unknown
                   where unknown.queue = job.queue and unknown.task = job.task
                     and greatest(unknown.since, job.run_at)
                         <= coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) - pg_catalog.make_interval(
                             secs => (%(unknown_afters)s::float8[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])))
    returning id, status, in_lane
),
told as (
    select pg_catalog.pg_notify('pgqueue.wake', '')
    where %(tell)s::boolean and exists (select from returned where status = 'ready' or in_lane)
          and exists (select from pgqueue.workers where idle)
)
select id, status from returned left join told on true
