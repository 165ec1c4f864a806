-- Ended jobs by hour, queue and tenant, with the cost of running them. A name is cut to 200 characters.
with named as (
    select *, substring(get_json_object(args, cast(:path as string)), 1, 200) as tenant from {jobs}
),
summed as (
    select
        day,
        hour,
        queue,
        tenant,
        count(*) as jobs,
        coalesce(sum(run), 0) / 1e6 as run_seconds,
        coalesce(sum(wait), 0) / 1e6 as wait_seconds,
        case when count(wait) > 0 then kll_sketch_agg_double(wait / 1e6) end as wait_sketch
    from named
    group by day, hour, queue, tenant
)
select
    *,
    case when wait_sketch is not null then kll_sketch_get_quantile_double(wait_sketch, cast(0.9 as double)) end as wait_p90,
    run_seconds * cast(:price as double) as cost
from summed
