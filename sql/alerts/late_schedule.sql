-- alerts/late_schedule: the schedule whose next tick has been due for the longest time, and for how many seconds; of one or of all.
-- index: none: reads the schedules
-- locks: none
-- run by: worker upkeep, drain
-- rights: monitor
-- why: one that was set aside is late from its next tick on, since it fires none; a paused one is not late
select name, task, extract(epoch from coalesce(%(now)s::timestamptz, now()) - pgqueue.as_datetime(next_at))::float8
from pgqueue.schedules
where paused_at is null and next_at <= coalesce(%(now)s::timestamptz, now())
  and (%(schedule)s::text is null or name = %(schedule)s::text)
order by next_at limit 1
