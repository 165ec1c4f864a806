-- insight/series_keep: say for how long minutes and hours are kept; null: as before.
-- index: none: one row
-- locks: the row of series_state
-- run by: QueueControl.keep_series
update pgqueue.series_state
set keep_minutes = coalesce(%(minutes)s::interval, keep_minutes), keep_hours = coalesce(%(hours)s::interval, keep_hours)
returning keep_minutes, keep_hours
