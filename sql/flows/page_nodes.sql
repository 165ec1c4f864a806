-- flows/page_nodes: members of a group, in order, behind a place, and where their jobs stand.
-- index: nodes_flow, jobs_pkey
-- locks: none
-- run by: PgQueue.flow_nodes
-- rights: monitor
select node.id, node.parent_id, node.place, node.name, node.kind, node.state, node.task, node.job_id,
       job.status, job.attempts, job.max_attempts, pgqueue.as_datetime(job.run_at), job.queue, job.cancel_requested
from pgqueue.nodes as node
left join pgqueue.jobs as job on job.id = node.job_id
where node.flow_id = %(flow)s::bigint and node.parent_id = %(parent)s::bigint and node.place > %(after)s::integer
  and (%(states)s::text[] is null or node.state = any(%(states)s::text[]))
order by node.place
limit %(limit)s::integer
