-- How many microseconds last attempts ran in each hour, by the day on which their jobs ended, queue, task and worker.
--
-- Of an attempt of more than 31 days only the last 31 count: each hour is a row, and a clock may have been wrong.
with ran as (
    select
        day,
        queue,
        task,
        worker_id,
        unix_micros(ended_at) as until,
        greatest(unix_micros(started_at), unix_micros(ended_at) - 31 * 24 * 3600000000) as since
    from {ended}
    where started_at < ended_at
),
by_hour as (
    select
        *,
        explode(sequence(since - pmod(since, 3600000000), until - pmod(until, 3600000000), 3600000000)) as hour_at
    from ran
)
select
    day,
    timestamp_micros(hour_at) as hour,
    queue,
    task,
    worker_id,
    cast(sum(least(until, hour_at + 3600000000) - greatest(since, hour_at)) as bigint) as busy
from by_hour
where least(until, hour_at + 3600000000) > greatest(since, hour_at)
group by day, hour_at, queue, task, worker_id
