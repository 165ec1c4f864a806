-- flows/release: release nodes for which nothing is left to wait; which.
-- index: nodes_pkey, flows_pkey
-- locks: those nodes; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: in a flow that is being cancelled, or that waits for its turn, nothing is released
update pgqueue.nodes as node set state = 'released'
where id = any(%(nodes)s::bigint[]) and state = 'waiting'
  and exists (select from pgqueue.flows where id = node.flow_id and state = 'running')
returning id, kind, job_id
