-- shards/there: whether this database was declared a shard.
-- index: none
-- locks: none
-- run by: PgQueue(shards=...), at its first use and when a key has moved; a worker that starts
select to_regclass('pgqueue.shard') is not null
