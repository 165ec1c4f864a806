-- shards/alone: wait until no other operator changes the guard or the row of this shard.
-- index: none
-- locks: an advisory lock, until the transaction ends
-- run by: pgqueue shards init, add, finish
-- why: the guard locks the tables shard and jobs, and what changes the row reads jobs before it: two at once were a deadlock
select pg_advisory_xact_lock(hashtextextended('pgqueue shard guard', 0))
