-- shards/lock: wait for all transactions that have entered with a key, and let no further one enter.
-- index: none
-- locks: the shard's row
-- run by: pgqueue shards add, pgqueue shards finish
select number, members, moving from pgqueue.shard for update
