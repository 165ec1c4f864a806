-- flows/rival: another flow of this key that has not ended.
-- index: flows_key
-- locks: none; the caller has locked the key
-- run by: PgQueue.retry_flow
-- rights: monitor
select id from pgqueue.flows
where key = %(key)s::text and ended_at is null
order by id limit 1
