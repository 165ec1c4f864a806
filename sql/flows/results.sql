-- flows/results: what the named jobs of a flow returned that are no members of a part of it, and what was sent along with them.
-- index: nodes_flow
-- locks: none
-- run by: FlowHandle.results
-- rights: reader
select node.name, node.task, node.result::text, node.spec->>'meta'
from pgqueue.nodes as root
join pgqueue.nodes as node on node.flow_id = root.flow_id and node.parent_id = root.id
where root.flow_id = %(flow)s::bigint and root.parent_id is null
  and node.kind = 'job' and node.state = 'succeeded' and node.name is not null
order by node.place
