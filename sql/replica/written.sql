-- replica/written: up to where the primary has written its log; null: this server is a replica itself.
-- index: none
-- locks: none
-- run by: queue.insight.replica, on the primary
select case when not pg_is_in_recovery() then pg_current_wal_lsn()::text end
