-- schedules/fire_due: note due ticks, each at most once, and add their jobs; one that is refused or has to wait does not delay the others.
-- index: none: fire_due_ticks uses schedule_ticks_pkey
-- locks: the new rows; one that another transaction holds is waited for 0.3 s
-- run by: worker upkeep, drain
-- rights: worker
select schedule, at, job_id, state, refused
from pgqueue.fire_due_ticks(%(names)s::text[], %(ats)s::timestamptz[], %(run_ats)s::timestamptz[], %(states)s::text[],
                            %(kinds)s::text[], coalesce(%(now)s::timestamptz, now()))
