-- shards/enter: whether a job with this key may be added here.
-- index: jobs_shard_key, unique_holds_pkey, rates_pkey, flows_key: inside the function, while the key moves
-- locks: the shard's row, shared; while the key moves, an advisory lock on the key
-- run by: PgQueue(shards=...), before each job with a key, in its transaction
select pgqueue.enter_shard(%(key)s::text, %(arrives)s::boolean)
