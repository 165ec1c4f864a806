-- schedules/settle: note up to when the ticks of schedules are decided, when to look next, and what is wrong with them.
-- index: schedules_pkey
-- locks: those rows; the transaction has locked them before
-- run by: worker upkeep, drain
update pgqueue.schedules as schedule
set settled = case when new.error is null then new.settled else schedule.settled end,
    next_at = case when new.error is null then new.next_at else schedule.next_at end,
    error = new.error,
    failed_at = case when new.error is not null then coalesce(%(now)s::timestamptz, now()) end
from unnest(%(names)s::text[], %(settled)s::timestamptz[], %(next_ats)s::timestamptz[], %(errors)s::text[])
     as new (name, settled, next_at, error)
where schedule.name = new.name
