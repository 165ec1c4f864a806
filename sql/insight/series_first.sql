-- insight/series_first: the first minute from an instant on that is in series_minutes.
-- index: series_minutes_at
-- locks: none
-- run by: worker upkeep
-- rights: monitor
select min(at) from pgqueue.series_minutes where whole and at >= %(since)s::timestamptz
