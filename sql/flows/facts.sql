-- flows/facts: the node of a job, and the nodes before it with their results; those of a group's members as arrays.
-- index: nodes_job, nodes_pkey, nodes_flow, edges_to, flows_pkey
-- locks: none
-- run by: worker runners, before an attempt of a job in a flow
-- rights: reader
-- why: the nodes before it are those before the groups that it is in, too. More bytes of results than the bound are left
--      out, those of the nearest nodes last, and the answer says so: one attempt must not fill the memory of its worker. offset 0 keeps the
--      planner from joins that, without statistics, read all edges and nodes
with recursive own as (
    select id, flow_id, parent_id, name, spec from pgqueue.nodes where job_id = %(job)s::bigint
),
around (id, parent_id, depth) as (
    select id, parent_id, 0 from own
    union all
    select parent.id, parent.parent_id, depth + 1
    from around join pgqueue.nodes as parent on parent.id = around.parent_id
    where depth < 100  -- none is nested as deep: rows that were edited by hand may lead in a circle
),
before (id, depth) as (
    select edge.from_id, depth
    from around cross join lateral (select from_id from pgqueue.edges where to_id = around.id offset 0) as edge
    union
    select edge.from_id, null::integer
    from before cross join lateral (select from_id from pgqueue.edges where to_id = before.id offset 0) as edge
),
nearest as (
    select id, min(depth) as depth from before group by id
)
select own.flow_id, flow.name, own.name, own.spec->'skip_if',
       node.name, node.kind, node.state, node.task, nearest.depth,
       case when sum(pg_column_size(node.result)) over (order by nearest.depth nulls last, nearest.id desc) <= %(bytes)s::bigint
            then node.result::text end,
       members.names, members.tasks, case when members.bytes <= %(bytes)s::bigint then members.results end,
       case when node.kind = 'job' then pg_column_size(node.result) else members.bytes end,
       node.spec->>'meta', members.metas
from own
join pgqueue.flows as flow on flow.id = own.flow_id
left join nearest on true
left join lateral (select * from pgqueue.nodes where id = nearest.id offset 0) as node on true
left join lateral (
    select array_agg(member.name order by member.place) as names, array_agg(member.task order by member.place) as tasks,
           array_agg(member.result::text order by member.place) as results,
           array_agg(member.spec->>'meta' order by member.place) as metas,
           coalesce(sum(pg_column_size(member.result)), 0) as bytes
    from pgqueue.nodes as member
    where member.flow_id = node.flow_id and member.parent_id = node.id and node.kind <> 'job' and member.spec->'expands' is null
) as members on true
