-- schedules/resume: let a schedule that is paused or set aside fire again; whether it was.
-- index: schedules_pkey
-- locks: that row
-- run by: Schedules.resume
update pgqueue.schedules as schedule
set paused_at = null, paused_by = null, failed_at = null, error = null
from (select name, paused_at, error from pgqueue.schedules where name = %(name)s::text for no key update) as before
where schedule.name = before.name
returning before.paused_at is not null or before.error is not null
