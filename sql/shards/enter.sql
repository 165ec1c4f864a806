-- shards/enter: whether a job with this key may be added here.
-- index: none: a function, which asks jobs_shard_key, unique_holds_pkey, rates_pkey and flows_key while the key moves
-- locks: the shard's row, shared; while the key moves, an advisory lock on the key
-- run by: PgQueue(shards=...), before each job with a key, in its transaction
-- rights: producer
select pgqueue.enter_shard(%(key)s::text, %(arrives)s::boolean)
