-- flows/root: the root of a flow, if it waits for its turn.
-- index: nodes_flow
-- locks: none; the caller has locked the flow
-- run by: PgQueue.cancel_flow
-- rights: monitor
select id from pgqueue.nodes where flow_id = %(flow)s::bigint and parent_id is null and state = 'waiting'
