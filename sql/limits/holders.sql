-- limits/holders: the jobs that run under limits, the oldest attempts first, and the workers that hold them.
-- index: jobs_running_in_lanes, workers_pkey
-- locks: none
-- run by: queue.control.limits
select job.id, job.queue, job.lane, job.task, worker.host, worker.pid, job.claimed_at
from pgqueue.jobs as job left join pgqueue.workers as worker on worker.id = job.worker_id
where job.status = 'running' and job.lane is not null
order by job.claimed_at, job.id
