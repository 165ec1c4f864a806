-- insight/series_state: what time it is, which hours and days are made, and for how long minutes are kept.
-- index: none: one row
-- locks: none
-- run by: Insight.series, Insight.totals, Insight.compare
-- rights: monitor
select coalesce(%(now)s::timestamptz, now()), hours_until, days_until, keep_minutes from pgqueue.series_state
