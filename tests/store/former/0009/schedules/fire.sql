-- schedules/fire: note ticks, each at most once, and add their jobs.
-- index: none: fire_ticks uses schedule_ticks_pkey
-- locks: the new rows; a tick that another transaction notes at this moment is waited for
-- run by: Schedules.fire, Schedules.backfill
select schedule, at, job_id, state, refused
from pgqueue.fire_ticks(%(names)s::text[], %(ats)s::timestamptz[], %(run_ats)s::timestamptz[], %(states)s::text[],
                        %(kinds)s::text[], coalesce(%(now)s::timestamptz, now()))
