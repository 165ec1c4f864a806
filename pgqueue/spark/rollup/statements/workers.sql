-- How busy each worker was in each hour of some days, and for how long it was alive; a worker that still runs counts to the end.
with hours as (
    select day, unix_date(day) * 86400000000 + number * 3600000000 as hour_at
    from (select day, explode(sequence(0, 23)) as number from {days})
),
alive as (
    select
        hours.day,
        timestamp_micros(hours.hour_at) as hour,
        worker.id as worker_id,
        worker.host,
        worker.concurrency,
        (
            least(coalesce(unix_micros(worker.ended_at), hours.hour_at + 3600000000), hours.hour_at + 3600000000)
            - greatest(unix_micros(worker.started_at), hours.hour_at)
        ) / 1e6 as alive_seconds
    from {workers} as worker
    join hours
        on unix_micros(worker.started_at) < hours.hour_at + 3600000000
        and coalesce(unix_micros(worker.ended_at), hours.hour_at + 3600000000) > hours.hour_at
        and coalesce(worker.ended_at > worker.started_at, true)
),
running as (
    select day, hour, worker_id, sum(busy) / 1e6 as busy_seconds
    from {busy}
    where worker_id is not null
    group by day, hour, worker_id
)
select
    day,
    hour,
    worker_id,
    host,
    concurrency,
    alive_seconds,
    coalesce(busy_seconds, 0) as busy_seconds,
    case
        when concurrency * alive_seconds > 0 then coalesce(busy_seconds, 0) / (concurrency * alive_seconds)
    end as utilisation
from alive
full outer join running using (day, hour, worker_id)
