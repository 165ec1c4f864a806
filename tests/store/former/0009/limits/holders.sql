-- limits/holders: the jobs that run under limits, the oldest attempts first, and the workers that hold them; those that keep their place.
-- index: jobs_running_in_lanes (kept places: it reads the scheduled jobs)
-- locks: none
-- run by: queue.control.limits
select job.id, job.queue, job.lane, job.task, (select host || ':' || pid from pgqueue.workers where id = job.worker_id),
       job.claimed_at
from (select * from pgqueue.jobs where status = 'running' and lane is not null
      union all
      select * from pgqueue.jobs where status = 'scheduled' and place_at is not null) as job
order by job.claimed_at, job.id
