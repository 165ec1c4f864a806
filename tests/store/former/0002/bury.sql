-- bury: move attempts' jobs to the dead table; a missing id: no longer held, or asked to cancel.
-- index: jobs_pkey
-- locks: the buried rows
-- run by: worker completer, take
-- why: no join: with one, the planner may start from the jobs, when its statistics say that there are none, and then every
--      entry of a job that is gone is read, a second and more while a snapshot is held open elsewhere; ids are given in
--      order, so width_bucket finds what belongs to each by halving
with done as (
    delete from pgqueue.jobs
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
      and claims = coalesce(%(claim)s::integer, (%(claims)s::integer[])[width_bucket(id, %(ids)s::bigint[])])
      and not cancel_requested
    returning *, width_bucket(id, %(ids)s::bigint[]) as place
)
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                               attempts, max_attempts, reason, queue, task, unique_key, args, errors)
select id, run_at, created_at, clock.now - make_interval(secs => (%(seconds)s::float8[])[place]), clock.now,
       worker_id, collisions, priority, attempts, max_attempts, (%(reasons)s::text[])[place], queue, task, unique_key, args,
       coalesce(errors, '[]') || ((%(errors)s::text[])[place]::jsonb || jsonb_build_object('at', clock.now))
from done, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock
returning id
