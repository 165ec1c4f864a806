-- limits/holders: the jobs that run under one limit, the oldest attempts first, and the workers that hold them; those that keep their place.
-- index: jobs_running_in_lanes (kept places: it reads the scheduled jobs)
-- locks: none
-- run by: Insight.limit
-- rights: monitor
select job.id, job.queue, job.lane, job.task, (select host || ':' || pid from pgqueue.workers where id = job.worker_id),
       job.claimed_at
from (select id, queue, lane, task, worker_id, claimed_at
      from pgqueue.jobs where status = 'running' and lane is not null and worker_id is not null
      union all
      select id, queue, lane, task, worker_id, claimed_at from pgqueue.jobs where status = 'scheduled' and place_at is not null) as job
where 'queue:' || job.queue = %(name)s::text
   or exists (select from string_to_table(job.lane, E'\n') as key where split_part(key, ' ', 1) = %(name)s::text)
order by job.claimed_at, job.id
