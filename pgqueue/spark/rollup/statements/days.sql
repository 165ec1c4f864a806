-- The figures of each day, from those of its hours.
select
    day,
    queue,
    task,
    cast(sum(jobs) as bigint) as jobs,
    cast(sum(succeeded) as bigint) as succeeded,
    cast(sum(cancelled) as bigint) as cancelled,
    cast(sum(dead) as bigint) as dead,
    cast(sum(attempts) as bigint) as attempts,
    cast(sum(retries) as bigint) as retries,
    sum(run_seconds) as run_seconds,
    sum(wait_seconds) as wait_seconds,
    sum(busy_seconds) as busy_seconds,
    case when count(wait_sketch) > 0 then kll_merge_agg_double(wait_sketch) end as wait_sketch,
    case when count(run_sketch) > 0 then kll_merge_agg_double(run_sketch) end as run_sketch,
    cast(coalesce(sum(slo_good), 0) as bigint) as good,
    cast(coalesce(sum(slo_total), 0) as bigint) as total
from {hours}
group by day, queue, task
