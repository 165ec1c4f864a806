-- pipeline/lake_in_flows: which of some jobs belong to a flow that has not ended: what follows them reads their results.
-- index: nodes_job, flows_live
-- locks: none
-- run by: pipeline erase
select node.job_id
from pgqueue.nodes as node join pgqueue.flows on flows.id = node.flow_id
where node.job_id = any(%(ids)s::bigint[]) and flows.ended_at is null
