-- insight/unknown_tasks: the tasks of waiting jobs that no live worker runs: of which queue, how many jobs, since when.
-- index: jobs_ready, jobs_lanes
-- locks: none
-- run by: health checks, Insight.queues, alerts
-- rights: monitor
-- why: jobs that no worker runs gather at the head of their queue, so only its first 20,000 jobs are looked at. A note that no
--      worker has renewed lately is of jobs that have gone
with noted as (
    select queue, task, since from pgqueue.unknown_tasks
    where met_at > coalesce(%(now)s::timestamptz, now()) - interval '5 minutes'
),
waiting as (
    select line.queue, job.task, count(*) as jobs
    from (select distinct queue from noted) as line
    cross join lateral (
        (select task from pgqueue.jobs where queue = line.queue and status = 'ready'
         order by -priority, run_at, id limit 20000)
        union all
        (select task from pgqueue.jobs where queue = line.queue and in_lane
         order by queue, lane, -priority, run_at, id limit 20000)) as job
    group by line.queue, job.task
)
select task, queue, jobs, pgqueue.as_datetime(since),
       extract(epoch from coalesce(%(now)s::timestamptz, now()) - pgqueue.as_datetime(since))::float8
from noted join waiting using (queue, task)
order by 4, 1, 2
