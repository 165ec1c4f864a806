-- insight/schedules: how late schedules are, the latest first, with the last tick of each.
-- index: schedule_ticks_pkey
-- locks: none
-- run by: Insight.schedules
-- rights: monitor
with late as (
    select name, module, task, queue, cron, every, at, timezone, anchor, start_at, end_at, gap, repeat, jitter, missed, missed_limit,
           tolerance, overlap, paused_at is not null as paused, error, pgqueue.as_datetime(next_at) as next_at,
           case when error is null and paused_at is null
                then greatest(0, extract(epoch from clock.now - pgqueue.as_datetime(next_at))) else 0 end::float8 as lag
    from pgqueue.schedules, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
    order by lag desc, name
    limit %(limit)s::integer
)
select name, task, queue, paused, error, next_at, lag, pgqueue.as_datetime(last.at),
       extract(epoch from last.fired_at - pgqueue.as_datetime(last.at))::float8, module, cron, every, late.at, timezone, anchor, start_at,
       end_at, gap, repeat, jitter, missed, missed_limit, tolerance, overlap
from late
left join lateral (
    select tick.at, tick.fired_at from pgqueue.schedule_ticks as tick
    where tick.schedule = late.name and state = 'fired' and kind = 'tick' order by tick.at desc limit 1
) as last on true
order by lag desc, name
