-- insight/running_named: running jobs that workers named with their last heartbeat, and those under limits, first claimed first.
-- index: jobs_pkey, jobs_running_in_lanes
-- locks: none
-- run by: Insight.running
-- rights: monitor
-- why: running jobs are in no index, and a large table is not read from end to end
with named as (
    select unnest(running) as id from pgqueue.workers
    union
    (select id from pgqueue.jobs where status = 'running' and lane is not null and worker_id is not null order by claimed_at limit 10000)
)
select job.id, job.queue, job.task, job.attempts, job.max_attempts::integer, pgqueue.as_datetime(job.claimed_at),
       extract(epoch from clock.now - pgqueue.as_datetime(job.claimed_at))::float8, job.worker_id, worker.host || ':' || worker.pid,
       (worker.lease_until > clock.now) is not true, job.cancel_requested
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
cross join pgqueue.jobs as job
left join pgqueue.workers as worker on worker.id = job.worker_id
where job.id = any(array(select id from named)) and job.status = 'running' and job.worker_id is not null
  and (%(queue)s::text is null or job.queue = %(queue)s::text) and (%(task)s::text is null or job.task = %(task)s::text)
order by job.claimed_at, job.id
limit %(limit)s::integer
