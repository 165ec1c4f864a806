-- The figures of each hour: of the jobs that ended in it, and how long jobs ran in it.
--
-- An hour in which jobs ran and none ended has a row, too. For a day of which only the running changed (kept), the figures of
-- its own jobs are those that it had.
with own as (
    select
        day, hour, queue, task, jobs, succeeded, cancelled, dead, attempts, retries,
        run_seconds, wait_seconds, wait_sketch, run_sketch, good, total
    from {fresh}
    union all
    select
        day, hour, queue, task, jobs, succeeded, cancelled, dead, attempts, retries,
        run_seconds, wait_seconds, wait_sketch, run_sketch, coalesce(slo_good, 0), coalesce(slo_total, 0)
    from {kept}
    where jobs > 0
),
running as (
    select day, hour, queue, task, sum(busy) / 1e6 as busy_seconds
    from {busy}
    group by day, hour, queue, task
)
select
    day,
    hour,
    queue,
    task,
    coalesce(jobs, 0) as jobs,
    coalesce(succeeded, 0) as succeeded,
    coalesce(cancelled, 0) as cancelled,
    coalesce(dead, 0) as dead,
    coalesce(attempts, 0) as attempts,
    coalesce(retries, 0) as retries,
    coalesce(run_seconds, 0) as run_seconds,
    coalesce(wait_seconds, 0) as wait_seconds,
    coalesce(busy_seconds, 0) as busy_seconds,
    wait_sketch,
    run_sketch,
    coalesce(good, 0) as good,
    coalesce(total, 0) as total
from own
full outer join running using (day, hour, queue, task)
