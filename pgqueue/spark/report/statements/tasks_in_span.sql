-- Tasks with enough jobs in a span of hours: their run times in all, and by hour.
select
    queue,
    task,
    sum(run_seconds) as run_seconds,
    list(run_p50 order by hour) as medians,
    list(run_p90 order by hour) as tails
from hours
where hour >= $first and hour < $beyond and run_p50 is not null
group by queue, task
having sum(jobs) >= $fewest_jobs
