-- flows/purged: failed nodes for whose retry others wait, and whose jobs are not among the dead any more.
-- index: flows_live, nodes_flow, edges_pkey, dead_jobs_pkey, jobs_pkey
-- locks: none
-- run by: worker upkeep
select node.id
from pgqueue.nodes as node
where node.flow_id = any(array(select id from pgqueue.flows where ended_at is null)) and node.kind = 'job' and node.state = 'failed'
  and exists (select from pgqueue.edges where from_id = node.id and rule = 'wait' and not met)
  and not exists (select from pgqueue.dead_jobs where id = node.job_id)
  and not exists (select from pgqueue.jobs where id = node.job_id)
limit %(limit)s::integer
