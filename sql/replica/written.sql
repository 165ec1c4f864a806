-- replica/written: up to where the primary has its log; null: this server is a replica itself.
-- index: none
-- locks: none
-- run by: queue.insight.replica, on the primary
-- why: with synchronous_commit off, a commit is in the log for up to 0.6 s before it is written to the disk
select case when not pg_is_in_recovery() then pg_current_wal_insert_lsn()::text end
