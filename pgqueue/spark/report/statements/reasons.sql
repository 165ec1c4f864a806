-- Why attempts failed in the reported week, the most frequent reason first; and how often the same reason was seen before.
with by_reason as (
    select
        queue,
        task,
        error_type,
        reason,
        coalesce(sum(failures) filter (where hour >= $begin), 0) as failures,
        coalesce(sum(dead) filter (where hour >= $begin), 0) as dead,
        coalesce(sum(failures) filter (where hour < $begin), 0) as former,
        max_by(sample, hour) as sample
    from failures
    group by queue, task, error_type, reason
)
select
    queue,
    task,
    error_type,
    reason,
    failures,
    failures / sum(failures) over () as share,
    dead,
    former * cast($former_weeks as double) as former_week,
    case when former = 0 and $knows_former then 'new' end as news,
    sample
from by_reason
where failures > 0
order by failures desc, queue, task, error_type, reason
limit $most
