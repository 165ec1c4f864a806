-- shards/state: which shard this database is, on which shards keys live, and whether keys are moving.
-- index: none
-- locks: none
-- run by: PgQueue(shards=...), at its first use and when a key has moved; a worker that starts
-- rights: ROLE
select number, members, moving from pgqueue.shard
