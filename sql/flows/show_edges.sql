-- flows/show_edges: for which nodes these nodes wait, how those stand, and what they are called.
-- index: edges_to, nodes_pkey, jobs_pkey
-- locks: none
-- run by: PgQueue.flow, PgQueue.flow_nodes
select edge.to_id, edge.from_id, coalesce(before.name, before.task, before.kind), coalesce(job.status, before.state),
       edge.rule, edge.met
from pgqueue.edges as edge
join pgqueue.nodes as before on before.id = edge.from_id
left join pgqueue.jobs as job on job.id = before.job_id
where edge.to_id = any(%(nodes)s::bigint[])
order by edge.to_id, edge.from_id
