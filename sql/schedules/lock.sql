-- schedules/lock: lock a schedule, and read what decides on its ticks, and the time.
-- index: schedules_pkey
-- locks: that row
-- run by: Schedules.fire, Schedules.backfill
select coalesce(%(now)s::timestamptz, clock_timestamp()), name, cron, every, at, timezone, anchor, start_at, end_at, gap, repeat,
       jitter, missed, missed_limit, tolerance, overlap, settled, false, '{}'::timestamptz[]
from pgqueue.schedules where name = %(name)s::text for no key update
