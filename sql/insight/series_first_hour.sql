-- insight/series_first_hour: the first hour from an instant on that is in series_hours.
-- index: series_hours_at
-- locks: none
-- run by: worker upkeep
-- rights: monitor
select min(at) from pgqueue.series_hours where whole and at >= %(since)s::timestamptz
