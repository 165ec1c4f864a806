-- flows/put_state: set the state of a flow that has not ended, or that is to run again.
-- index: flows_pkey
-- locks: the flow's row, which the caller has locked
-- run by: PgQueue.cancel_flow, PgQueue.retry_flow
update pgqueue.flows set state = %(state)s::text, ended_at = null where id = %(flow)s::bigint
