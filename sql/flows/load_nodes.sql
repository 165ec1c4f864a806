-- flows/load_nodes: all nodes of a flow, each after the group that it is in.
-- index: nodes_flow
-- locks: none; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- rights: reader
select id, parent_id, place, kind, state, waits_for, job_id, name, task, coalesce(spec ? 'skip_if', false)
from pgqueue.nodes where flow_id = %(flow)s::bigint
order by id
