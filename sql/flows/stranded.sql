-- flows/stranded: jobs of released nodes that are not live any more, how each ended, and what it returned.
-- index: flows_live, nodes_flow, jobs_pkey, dead_jobs_pkey
-- locks: none
-- run by: worker upkeep
-- rights: reader
-- why: one snapshot shows both the job and its node, or neither, as a transaction has left them; a job without any
--      record was deleted by another program: it counts as cancelled
select node.job_id,
       case when exists (select from pgqueue.dead_jobs where id = node.job_id) then 'dead'
            else coalesce((select outcome from pgqueue.job_history where id = node.job_id limit 1), 'cancelled') end,
       (select result::text from pgqueue.job_history where id = node.job_id limit 1)
from pgqueue.nodes as node
where node.flow_id = any(array(select id from pgqueue.flows where ended_at is null)) and node.kind = 'job' and node.state in ('released', 'waiting')
  and not exists (select from pgqueue.jobs where id = node.job_id)
limit %(limit)s::integer
