-- flows/ended_keys: the keys of those of these flows that have ended.
-- index: flows_pkey
-- locks: none; the caller has locked the flows
-- run by: PgQueue.retry, QueueControl.dead
-- rights: monitor
select distinct key from pgqueue.flows
where id = any(%(flows)s::bigint[]) and key is not null and ended_at is not null
