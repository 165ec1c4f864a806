-- Ended jobs with the hour in which each ended, and the microseconds that its last attempt waited and ran.
--
-- Null for a job that never started, and never below zero, even if a clock was wrong: greatest() alone returns 0 for null
-- in DuckDB and in Spark.
select
    *,
    timestamp_micros(unix_micros(ended_at) - pmod(unix_micros(ended_at), 3600000000)) as hour,
    case when started_at is not null then greatest(unix_micros(ended_at) - unix_micros(started_at), 0) end as run,
    case when started_at is not null then greatest(unix_micros(started_at) - unix_micros(run_at), 0) end as wait
from {ended}
