-- insight/place: the node of a job, and the groups around it, the innermost first; with the flow.
-- index: nodes_job, nodes_pkey, flows_pkey
-- locks: none
-- run by: Insight.story
-- rights: reader
with recursive around (id, parent_id, depth) as (
    select id, parent_id, 0 from pgqueue.nodes where job_id = %(id)s::bigint
    union all
    select parent.id, parent.parent_id, depth + 1
    from around join pgqueue.nodes as parent on parent.id = around.parent_id
    where depth < 100  -- none is nested as deep: rows that were edited by hand may lead in a circle
)
select flow.id, flow.kind, flow.name, flow.state, node.id, coalesce(node.name, node.task, node.kind), node.state,
       node.parent_id is null
from around
cross join lateral (select * from pgqueue.nodes where id = around.id offset 0) as node
join pgqueue.flows as flow on flow.id = node.flow_id
order by around.depth
