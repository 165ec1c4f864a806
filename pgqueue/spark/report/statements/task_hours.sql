-- The hours of each task in which jobs of it ended, in order.
select
    queue,
    task,
    list(hour order by hour) as hour,
    list(cast(jobs as double) order by hour) as jobs,
    list(cast(attempts as double) order by hour) as attempts,
    list(cast(retries + dead as double) order by hour) as failed,
    list(wait_p90 order by hour) as wait,
    list(cast(retries as double) order by hour) as retries
from hours
group by queue, task
