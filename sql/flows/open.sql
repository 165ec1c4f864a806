-- flows/open: the last nodes of a flow before a position that have not ended, and whose jobs are live and not asked to stop.
-- index: nodes_flow, jobs_pkey
-- locks: none; the caller has locked the flow
-- run by: PgQueue.cancel_flow
-- rights: monitor
-- why: from the end, so that the members of a group come before the group; a released group ends with its last member
select node.id, node.parent_id, node.place, node.job_id,
       exists (select from pgqueue.jobs as job
               where job.id = node.job_id and (job.status <> 'running' or not job.cancel_requested))
from pgqueue.nodes as node
where node.flow_id = %(flow)s::bigint and (node.parent_id, node.place) < (%(parent)s::bigint, %(place)s::integer)
  and (node.state = 'waiting' or node.state = 'released' and node.job_id is not null)
order by node.parent_id desc, node.place desc
limit %(limit)s::integer
