-- cancel_ended: end attempts' jobs as cancelled, with the last error; a missing id: that attempt no longer held its job.
-- index: jobs_pkey
-- locks: the ended rows
-- run by: worker completer, take
-- why: no join: with one, the planner may start from the jobs, when its statistics say that there are none, and then every
--      entry of a job that is gone is read, a second and more while a snapshot is held open elsewhere; ids are given in
--      order, so width_bucket finds what belongs to each by halving
with done as (
    delete from pgqueue.jobs
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
      and claims = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
      and (cancel_requested or not %(only_requested)s::boolean)
    returning *, (%(errors)s::text[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])] as error
)
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority,
                                 attempts, max_attempts, outcome, queue, task, unique_key, args, errors)
select id, run_at, created_at, claimed_at, clock.now, worker_id, collisions, priority,
       attempts, max_attempts, 'cancelled', queue, task, unique_key, args,
       case when error is null then errors
            else pgqueue.with_error(errors, error::jsonb, clock.now) end
from done, (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
returning id
