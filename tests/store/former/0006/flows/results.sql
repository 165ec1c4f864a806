-- flows/results: what the named jobs of a flow returned that are no members of a part of it, and what was sent along with them.
-- index: nodes_flow, job_history_id
-- locks: none
-- run by: FlowHandle.results
select node.name, node.task, node.result::text,
       (select ended.meta::text from pgqueue.job_history as ended where ended.id = node.job_id
        order by finished_at desc limit 1)
from pgqueue.nodes as root
join pgqueue.nodes as node on node.flow_id = root.flow_id and node.parent_id = root.id
where root.flow_id = %(flow)s::bigint and root.parent_id is null
  and node.kind = 'job' and node.state = 'succeeded' and node.name is not null
order by node.place
