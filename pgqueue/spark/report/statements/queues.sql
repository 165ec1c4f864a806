-- Each queue in the reported week, the busiest first; and its jobs in a former week, on average.
with now as (
    select
        queue,
        sum(jobs) as jobs,
        sum(succeeded) as succeeded,
        sum(cancelled) as cancelled,
        sum(dead) as dead,
        sum(retries) as retries
    from hours
    where hour >= $begin
    group by queue
),
former as (
    select queue, sum(jobs) as jobs
    from hours
    where hour < $begin
    group by queue
)
select
    queue,
    now.jobs,
    now.succeeded,
    now.cancelled,
    now.dead,
    now.retries,
    former.jobs * cast($former_weeks as double) as former
from now
left join former using (queue)
order by now.jobs desc, queue
limit $most
