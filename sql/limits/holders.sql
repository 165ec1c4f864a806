-- limits/holders: the jobs that run under limits, the oldest attempts first, and the workers that hold them.
-- index: jobs_running_in_lanes
-- locks: none
-- run by: queue.control.limits
select job.id, job.queue, job.lane, job.task, (select host || ':' || pid from pgqueue.workers where id = job.worker_id),
       job.claimed_at
from pgqueue.jobs as job
where job.status = 'running' and job.lane is not null
order by job.claimed_at, job.id
