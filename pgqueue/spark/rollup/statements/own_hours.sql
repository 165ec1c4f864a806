-- The figures of each hour from the jobs that ended in it.
--
-- A job keeps its promise, that of its task or else that of its queue, if it succeeded and in time. Durations are added up as
-- whole microseconds, so a sum does not depend on the order of the rows.
with judged as (
    select
        job.*,
        own.queue is not null or common.queue is not null as promised,
        case when own.queue is not null then own.wait else common.wait end as longest_wait,
        case when own.queue is not null then own.run else common.run end as longest_run
    from {jobs} as job
    left join {promises} as own on own.queue = job.queue and own.task = job.task
    left join {promises} as common on common.queue = job.queue and common.task is null
)
select
    day,
    hour,
    queue,
    task,
    count(*) as jobs,
    count_if(outcome = 'succeeded') as succeeded,
    count_if(outcome = 'cancelled') as cancelled,
    count_if(outcome = 'dead') as dead,
    cast(sum(attempts) as bigint) as attempts,
    cast(sum(greatest(cast(attempts as bigint) - 1, 0)) as bigint) as retries,
    coalesce(sum(run), 0) / 1e6 as run_seconds,
    coalesce(sum(wait), 0) / 1e6 as wait_seconds,
    case when count(wait) > 0 then kll_sketch_agg_double(wait / 1e6) end as wait_sketch,
    case when count(run) > 0 then kll_sketch_agg_double(run / 1e6) end as run_sketch,
    count_if(
        promised
        and outcome = 'succeeded'
        and coalesce(wait <= longest_wait, longest_wait is null)
        and coalesce(run <= longest_run, longest_run is null)
    ) as good,
    count_if(promised and outcome <> 'cancelled') as total
from judged
group by day, hour, queue, task
