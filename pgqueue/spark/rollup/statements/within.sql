-- When jobs ran, by the day of the hour instead of the day on which they ended, of these days only.
with lying as (
    select
        date_from_unix_date(cast(floor(unix_micros(hour) / 86400000000) as int)) as day, hour, queue, task, worker_id, busy
    from {busy}
)
select * from lying where day in (select day from {days})
