-- flows/growing: the group that a job's node is in, or the one of this name beside or around it, and what is known of it.
-- index: nodes_job, nodes_pkey, nodes_name, nodes_flow, flows_pkey
-- locks: none
-- run by: the plan that adds to flows, before and after it locks the flow
-- rights: monitor
with recursive own as (
    select id, flow_id, parent_id from pgqueue.nodes where job_id = %(job)s::bigint
),
around (id, parent_id, depth) as (
    select id, parent_id, 0 from own
    union all
    select parent.id, parent.parent_id, depth + 1
    from around join pgqueue.nodes as parent on parent.id = around.parent_id
    where depth < 100  -- none is nested as deep: rows that were edited by hand may lead in a circle
),
found as (
    select parent_id as id, 0 as depth from own where %(name)s::text is null
    union all
    select node.id, around.depth
    from around join pgqueue.nodes as node on node.parent_id = around.parent_id and node.name = %(name)s::text
    where node.kind <> 'job'
)
select own.id, own.flow_id, flow.state, node.id, node.kind, node.state,
       (select last.place from pgqueue.nodes as last
        where last.flow_id = own.flow_id and last.parent_id = node.id order by last.place desc limit 1)
from own
join pgqueue.flows as flow on flow.id = own.flow_id
left join (select id from found order by depth limit 1) as one on true
left join pgqueue.nodes as node on node.id = one.id
