-- bury: move attempts' jobs to the dead table; a missing id: no longer held, or asked to cancel.
-- index: jobs_pkey, dead_jobs_pkey
-- locks: the buried rows
-- run by: worker completer, worker upkeep, take
-- why: no join: with one, the planner may start from the jobs, when its statistics say that there are none, and then every
--      entry of a job that is gone is read, a second and more while a snapshot is held open elsewhere; ids are given in
--      order, so width_bucket finds what belongs to each by halving. Where a dead job has the id already, this one is
--      kept under a new id, and its last error names the former one.
with done as (
    delete from pgqueue.jobs
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
      and claims = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
      and not cancel_requested
    returning *, pg_catalog.width_bucket(id, %(ids)s::bigint[]) as place
),
dead as (
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors)
    select case when taken then pgqueue.free_id() else id end,
           run_at, created_at, clock.now - pg_catalog.make_interval(secs => (%(seconds)s::float8[])[place]), clock.now,
           worker_id, collisions, priority, attempts, max_attempts, (%(reasons)s::text[])[place], queue, task, unique_key,
           pgqueue.as_jsonb(args),
           pgqueue.with_error(errors, (%(errors)s::text[])[place]::jsonb
               || case when taken then pg_catalog.jsonb_build_object('former_id', id) else '{}' end, clock.now)
    from done cross join (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
    cross join lateral (select exists (select from pgqueue.dead_jobs as other where other.id = done.id) as taken) as found
)
select id from done
