-- Each objective in the reported week and before it, the one that spends its budget fastest first.
with by_task as (
    select
        queue,
        slo_objective as objective,
        task,
        sum(slo_total) filter (where hour >= $begin) as total,
        sum(slo_good) filter (where hour >= $begin) as good,
        sum(slo_total) filter (where hour < $begin) as former_total,
        sum(slo_good) filter (where hour < $begin) as former_good
    from hours
    where slo_total > 0
    group by queue, slo_objective, task
),
summed as (
    select
        queue,
        objective,
        sum(total) as total,
        sum(good) as good,
        sum(former_total) as former_total,
        sum(former_good) as former_good,
        max(struct_pack(missed := coalesce(total - good, 0), task := task)) as worst
    from by_task
    group by queue, objective
)
select
    queue,
    objective,
    good / total as attained,
    total as jobs,
    total - good as missed,
    (1 - good / total) / (1 - objective) as burn,
    worst.task as worst_task,
    worst.missed as worst_missed,
    case when former_total > 0 then former_good / former_total end as attained_before
from summed
where total > 0
order by burn desc, queue
