-- flows/out_of_turn: which of these jobs are of a flow that has ended, and another flow of its key has not.
-- index: nodes_job, flows_pkey, flows_key
-- locks: none; the caller has locked the flows and the keys
-- run by: PgQueue.retry, QueueControl.dead
-- rights: monitor
select node.job_id from pgqueue.nodes as node join pgqueue.flows as flow on flow.id = node.flow_id
where node.job_id = any(%(jobs)s::bigint[]) and flow.ended_at is not null
  and exists (select from pgqueue.flows as other where other.key = flow.key and other.ended_at is null)
