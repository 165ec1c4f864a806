-- put_back: return attempts' jobs to the line or the calendar; a missing id: no longer held, or asked to cancel.
-- index: jobs_pkey
-- locks: the returned rows
-- run by: worker completer, take
-- why: no join: with one, the planner may start from the jobs, when its statistics say that there are none, and then every
--      entry of a job that is gone is read, a second and more while a snapshot is held open elsewhere; ids are given in
--      order, so width_bucket finds what belongs to each by halving
update pgqueue.jobs as job
set (status, run_at, unknown_since, attempts, worker_id, claimed_at, errors) = (
    select case when ended.delay > 0 then 'scheduled' else 'ready' end,
           case when ended.delay is null then job.run_at else clock.now + pg_catalog.make_interval(secs => ended.delay) end,
           case when ended.delay is null then job.unknown_since end,  -- with a delay, it has run: its task is known
           job.attempts - ended.refund, null::uuid, null::timestamptz,
           case when ended.error is null then job.errors
                else pgqueue.with_error(job.errors, ended.error::jsonb, clock.now) end
    from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock,
         (select pg_catalog.width_bucket(job.id, %(ids)s::bigint[]) as place) as found,
         lateral (select (%(delays)s::float8[])[place] as delay, (%(refunds)s::smallint[])[place] as refund,
                         (%(errors)s::text[])[place] as error) as ended
)
where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
      and claims = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
      and not cancel_requested
returning id
