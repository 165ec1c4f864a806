-- shards/settings: what operators have said of queues and limits, to say it to a new shard.
-- index: none: reads both tables
-- locks: none
-- run by: pgqueue shards init, add
-- rights: monitor
select coalesce((select jsonb_agg(to_jsonb(queues)) from pgqueue.queues), '[]')::text,
       coalesce((select jsonb_agg(to_jsonb(limits)) from pgqueue.limits where set_at is not null), '[]')::text
