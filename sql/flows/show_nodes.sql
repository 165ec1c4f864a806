-- flows/show_nodes: the nodes of a flow, and where their jobs stand, except the members of groups of more than one portion.
-- index: nodes_flow, node_counts_pkey, nodes_pkey, jobs_pkey
-- locks: none
-- run by: PgQueue.flow
-- rights: monitor
with recursive shown (id, kind) as (
    select id, kind from pgqueue.nodes where flow_id = %(flow)s::bigint and parent_id is null
    union all
    select member.id, member.kind
    from shown join pgqueue.nodes as member on member.flow_id = %(flow)s::bigint and member.parent_id = shown.id
    where shown.kind <> 'job' and not exists (select from pgqueue.node_counts where node_id = shown.id and portion = 1)
)
select node.id, node.parent_id, node.place, node.name, node.kind, node.state, node.task, node.job_id,
       job.status, job.attempts, job.max_attempts, pgqueue.as_datetime(job.run_at), job.queue, job.cancel_requested
from (select id from shown limit %(limit)s::integer) as listed
join pgqueue.nodes as node on node.id = listed.id
left join pgqueue.jobs as job on job.id = node.job_id
order by node.id
