-- What each tenant used in the reported week, most run time first; and its run time in the week before.
with by_tenant as (
    select
        tenant,
        sum(jobs) filter (where hour >= $begin) as jobs,
        sum(run_seconds) filter (where hour >= $begin) as run_seconds,
        sum(cost) filter (where hour >= $begin) as cost,
        sum(run_seconds) filter (where hour >= $week_before and hour < $begin) as run_seconds_before
    from tenants
    where tenant is not null
    group by tenant
),
total as (
    select sum(run_seconds) as run_seconds
    from by_tenant
)
select
    tenant,
    jobs,
    by_tenant.run_seconds,
    case when total.run_seconds > 0 then by_tenant.run_seconds / total.run_seconds end as share,
    cost,
    run_seconds_before
from by_tenant, total
where jobs > 0
order by by_tenant.run_seconds desc, tenant
limit $most
