-- Queues with a tenant that took a large share of the run time of an hour: what the tenant took and what the others had, by hour.
--
-- $queue and $tenant: of this one only; null: of all.
with by_hour as (
    select queue, hour, sum(run_seconds) as run, sum(jobs) as jobs, sum(wait_seconds) as wait
    from tenants
    where queue = coalesce($queue, queue)
    group by queue, hour
),
leaders as (
    select distinct queue, tenant
    from tenants
    join by_hour using (queue, hour)
    where tenant = coalesce($tenant, tenant) and tenants.run_seconds > 0 and tenants.run_seconds >= $big_share * by_hour.run
),
shared as (
    select
        queue,
        leaders.tenant,
        hour,
        coalesce(own.run_seconds, 0) as own_run,
        greatest(by_hour.run - coalesce(own.run_seconds, 0), 0) as other_run,
        by_hour.jobs - coalesce(own.jobs, 0) as other_jobs,
        greatest(by_hour.wait - coalesce(own.wait_seconds, 0), 0) as other_wait
    from by_hour
    join leaders using (queue)
    left join tenants as own using (queue, tenant, hour)
)
select
    queue,
    tenant,
    list(hour order by hour) as hour,
    list(cast(own_run as double) order by hour) as own_run,
    list(cast(other_run as double) order by hour) as other_run,
    list(cast(other_jobs as double) order by hour) as other_jobs,
    list(cast(other_wait as double) order by hour) as other_wait
from shared
group by queue, tenant
