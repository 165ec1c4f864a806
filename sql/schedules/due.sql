-- schedules/due: lock the schedules that are due, and read what decides on their ticks.
-- index: schedules_next, jobs_pkey, schedule_ticks_waiting
-- locks: those rows, skipping locked ones
-- run by: worker upkeep, drain
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
due as (
    select * from pgqueue.schedules
    where paused_at is null and error is null and next_at <= (select now from clock)
    order by next_at limit %(limit)s::integer for no key update skip locked
)
select clock.now, due.name, cron, every, at, timezone, anchor, start_at, end_at, gap, repeat, jitter, missed, missed_limit,
       tolerance, overlap, settled,
       cardinality(live_jobs) > 0 and exists (select from pgqueue.jobs where id = any(live_jobs)),
       case when overlap = 'queue' then
           array(select tick.at from pgqueue.schedule_ticks as tick
                 where tick.schedule = due.name and state = 'waiting' order by tick.at limit 101)
       end
from due cross join clock
order by next_at
