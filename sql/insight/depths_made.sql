-- insight/depths_made: what time it is, and until when hours of depths are made.
-- index: series_depth_hours_at
-- locks: none
-- run by: Insight.depths
-- rights: monitor
select present, (select max(at) + interval '1 hour' from pgqueue.series_depth_hours where at < date_trunc('hour', present, 'UTC'))
from coalesce(%(now)s::timestamptz, now()) as present
