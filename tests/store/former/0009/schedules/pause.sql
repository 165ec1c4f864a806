-- schedules/pause: pause a schedule, and note who did it; whether it was not paused before.
-- index: schedules_pkey
-- locks: that row
-- run by: Schedules.pause
update pgqueue.schedules as schedule
set paused_at = coalesce(schedule.paused_at, %(now)s::timestamptz, now()),
    paused_by = case when schedule.paused_at is null then %(by)s::text else schedule.paused_by end
from (select name, paused_at from pgqueue.schedules where name = %(name)s::text for no key update) as before
where schedule.name = before.name
returning before.paused_at is null
