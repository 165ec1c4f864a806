-- flows/take: lock a flow; its key, its state, and whether it has ended.
-- index: flows_pkey
-- locks: the flow's row
-- run by: PgQueue.cancel_flow, PgQueue.retry_flow
select key, state, ended_at is not null from pgqueue.flows where id = %(flow)s::bigint for no key update
