-- insight/series_state: what time it is, and which hours and days are made.
-- index: none: one row
-- locks: none
-- run by: Insight.series, Insight.totals
select coalesce(%(now)s::timestamptz, now()), hours_until, days_until from pgqueue.series_state
