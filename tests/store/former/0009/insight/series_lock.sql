-- insight/series_lock: lock the state of the series; no row: another worker moves rows now.
-- index: none: one row
-- locks: the row of series_state, if it is free
-- run by: worker upkeep
select hours_until, days_until, coalesce(%(now)s::timestamptz, now()) from pgqueue.series_state for update skip locked
