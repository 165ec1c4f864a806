-- limits/lanes: how many jobs of each lane run, how many of those a lost worker holds, and how many wait. A job that keeps its place counts as running, but not in its queue as a whole.
-- index: jobs_running_in_lanes, jobs_lanes (kept places: it reads the scheduled jobs)
-- locks: none
-- run by: queue.control.limits
-- why: counted from the jobs themselves, as claims count them; it reads all jobs that run or wait under limits
select queue, lane, sum(running)::bigint, sum(lost)::bigint, sum(waiting)::bigint
from (select job.queue, job.lane, count(*) as running,
             count(*) filter (where ((select lease_until from pgqueue.workers where id = job.worker_id)
                                     > coalesce(%(now)s::timestamptz, now())) is not true) as lost,
             0 as waiting
      from pgqueue.jobs as job where job.status = 'running' and job.lane is not null group by job.queue, job.lane
      union all
      select '', lane, count(*), 0, 0 from pgqueue.jobs
      where status = 'scheduled' and place_at is not null group by lane
      union all
      select queue, lane, 0, 0, count(*) from pgqueue.jobs where in_lane group by queue, lane) as counted
group by queue, lane
order by queue, lane
