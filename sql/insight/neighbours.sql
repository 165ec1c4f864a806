-- insight/neighbours: for which nodes these nodes wait, and which nodes wait for them.
-- index: edges_to, edges_pkey, nodes_pkey, jobs_pkey
-- locks: none
-- run by: Insight.story
-- rights: reader
-- why: offset 0 keeps the planner from joins that, without statistics, read all edges and nodes
with found as (
    (select true as before, from_id as id, rule, met from pgqueue.edges where to_id = any(%(nodes)s::bigint[])
     order by from_id limit %(limit)s::integer)
    union all
    (select false, to_id, rule, met from pgqueue.edges where from_id = any(%(nodes)s::bigint[])
     order by to_id limit %(limit)s::integer)
)
select found.before, coalesce(node.name, node.task, node.kind),
       coalesce((select status from pgqueue.jobs where id = node.job_id), node.state), node.job_id, found.rule, found.met
from found
cross join lateral (select * from pgqueue.nodes where id = found.id offset 0) as node
order by found.before desc, found.id
