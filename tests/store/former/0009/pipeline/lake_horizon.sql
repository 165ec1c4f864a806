-- pipeline/lake_horizon: the time, the lowest number of a transaction in progress, and the next number.
-- index: none
-- locks: none
-- run by: pipeline export, status
select coalesce(%(now)s::timestamptz, clock_timestamp()),
       pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint
from pg_current_snapshot() as seen
