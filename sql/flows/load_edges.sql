-- flows/load_edges: all edges of a flow.
-- index: nodes_flow, edges_to
-- locks: none; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- rights: monitor
select from_id, to_id, rule, met from pgqueue.edges
where to_id = any(array(select id from pgqueue.nodes where flow_id = %(flow)s::bigint))
