-- promote: move jobs that are due into their lines; also tell in how many seconds the next is due.
-- index: jobs_scheduled
-- locks: the promoted rows, skipping locked ones
-- run by: worker upkeep, take
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
due as (
    select id from pgqueue.jobs
    where status = 'scheduled' and run_at <= (select now from clock)
    order by run_at
    limit %(limit)s::integer
    for update skip locked
),
promoted as (
    update pgqueue.jobs as job set status = 'ready'
    from due where job.id = due.id
    returning job.id
)
select (select count(*) from promoted),
       (select extract(epoch from run_at - clock.now)::float8 from pgqueue.jobs
        where status = 'scheduled' and run_at > clock.now order by run_at limit 1)
from clock
