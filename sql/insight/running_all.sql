-- insight/running_all: the jobs that workers hold, those that were claimed first at the front.
-- index: none: reads all live jobs, of a table that has few
-- locks: none
-- run by: Insight.running
-- rights: monitor
select job.id, job.queue, job.task, job.attempts, job.max_attempts::integer, pgqueue.as_datetime(job.claimed_at),
       extract(epoch from clock.now - pgqueue.as_datetime(job.claimed_at))::float8, job.worker_id, worker.host || ':' || worker.pid,
       (worker.lease_until > clock.now) is not true, job.cancel_requested
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
cross join pgqueue.jobs as job
left join pgqueue.workers as worker on worker.id = job.worker_id
where job.status = 'running' and job.worker_id is not null
  and (%(queue)s::text is null or job.queue = %(queue)s::text) and (%(task)s::text is null or job.task = %(task)s::text)
order by job.claimed_at, job.id
limit %(limit)s::integer
