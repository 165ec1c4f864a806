-- replica/replayed: how many bytes of the primary's log the replica has not replayed, and the age of what it replayed last, in seconds.
-- index: none
-- locks: none
-- run by: queue.insight.replica, on the replica
select pg_is_in_recovery(),
       greatest(pg_wal_lsn_diff(%(written)s::pg_lsn, pg_last_wal_replay_lsn()), 0)::bigint,
       extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::float8
