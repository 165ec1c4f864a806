-- schedules/resume: let a schedule that is paused or set aside fire again, from now on if its place is in the future; whether it was.
-- index: schedules_pkey
-- locks: that row
-- run by: Schedules.resume
-- why: a clock that was wrong for a moment may have moved the place into another year, and no worker would look until then
update pgqueue.schedules as schedule
set paused_at = null, paused_by = null, failed_at = null, error = null,
    next_at = case when settled > coalesce(%(now)s::timestamptz, now()) then coalesce(%(now)s::timestamptz, now()) else next_at end,
    settled = least(settled, coalesce(%(now)s::timestamptz, now()))
from (select name, paused_at, error from pgqueue.schedules where name = %(name)s::text for no key update) as before
where schedule.name = before.name
returning before.paused_at is not null or before.error is not null
