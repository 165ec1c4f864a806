-- flows/show_edges: for which nodes these nodes wait, how those stand, and what they are called.
-- index: edges_to, nodes_pkey, jobs_pkey
-- locks: none
-- run by: PgQueue.flow, PgQueue.flow_nodes
-- rights: monitor
-- why: offset 0 keeps the planner from a join that, without statistics, reads the nodes of all flows
select edge.to_id, edge.from_id, coalesce(before.name, before.task, before.kind),
       coalesce((select status from pgqueue.jobs where id = before.job_id), before.state), edge.rule, edge.met
from pgqueue.edges as edge
cross join lateral (select name, task, kind, job_id, state from pgqueue.nodes where id = edge.from_id offset 0) as before
where edge.to_id = any(%(nodes)s::bigint[])
order by edge.to_id, edge.from_id
