-- pipeline/extract_state: which database this is, which transactions are in progress, the next one's number, the time.
-- index: none
-- locks: none
-- run by: spark.read, spark.readStream
select (select system_identifier::text from pg_control_system()),
       (select oid::bigint from pg_database where datname = current_database()),
       pg_snapshot_xmin(now.snapshot)::text::bigint, pg_snapshot_xmax(now.snapshot)::text::bigint,
       case when not pg_is_in_recovery()  -- a replica does not list them
            then array(select running::text::bigint from pg_snapshot_xip(now.snapshot) as running) end,
       clock_timestamp()
from pg_current_snapshot() as now (snapshot)
