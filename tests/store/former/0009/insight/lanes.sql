-- insight/lanes: how many jobs of each lane run, how many of those a lost worker holds, and how many wait on some pages of the table.
-- index: jobs_running_in_lanes
-- locks: none
-- run by: Insight.limits
-- why: limits/lanes counts all jobs that wait; of a large table a sample tells about how many
select queue, lane, sum(running)::bigint, sum(lost)::bigint, sum(waiting)::bigint
from (select job.queue, job.lane, count(*) as running,
             count(*) filter (where ((select lease_until from pgqueue.workers where id = job.worker_id)
                                     > coalesce(%(now)s::timestamptz, now())) is not true) as lost,
             0 as waiting
      from pgqueue.jobs as job where job.status = 'running' and job.lane is not null group by job.queue, job.lane
      union all
      select queue, lane, 0, 0, count(*) from pgqueue.jobs tablesample system (%(percent)s::real)
      where in_lane group by queue, lane) as counted
group by queue, lane
