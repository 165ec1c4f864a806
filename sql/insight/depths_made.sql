-- insight/depths_made: what time it is, and until when hours of depths are made.
-- index: series_depth_hours_at
-- locks: none
-- run by: Insight.depths
select coalesce(%(now)s::timestamptz, now()), (select max(at) + interval '1 hour' from pgqueue.series_depth_hours)
