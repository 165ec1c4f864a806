-- Hours or days with the percentiles of their sketches, and how far the promise of the task, or else of its queue, was kept.
with promised as (
    select
        sums.*,
        case when own.queue is not null then own.objective else common.objective end as slo_objective
    from {sums} as sums
    left join {promises} as own on own.queue = sums.queue and own.task = sums.task
    left join {promises} as common on common.queue = sums.queue and common.task is null
),
attained as (
    select
        *,
        case when slo_objective is not null then good end as slo_good,
        case when slo_objective is not null then total end as slo_total,
        case when slo_objective is not null and total > 0 then good / total end as slo_attained
    from promised
)
select
    *,
    case when wait_sketch is not null then kll_sketch_get_quantile_double(wait_sketch, cast(0.5 as double)) end as wait_p50,
    case when wait_sketch is not null then kll_sketch_get_quantile_double(wait_sketch, cast(0.9 as double)) end as wait_p90,
    case when wait_sketch is not null then kll_sketch_get_quantile_double(wait_sketch, cast(0.99 as double)) end as wait_p99,
    case when run_sketch is not null then kll_sketch_get_quantile_double(run_sketch, cast(0.5 as double)) end as run_p50,
    case when run_sketch is not null then kll_sketch_get_quantile_double(run_sketch, cast(0.9 as double)) end as run_p90,
    case when run_sketch is not null then kll_sketch_get_quantile_double(run_sketch, cast(0.99 as double)) end as run_p99,
    (1 - slo_attained) / (1 - slo_objective) as slo_burn
from attained
