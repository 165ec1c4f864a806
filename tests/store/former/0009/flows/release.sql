-- flows/release: release nodes that wait for no other and whose group is released; which.
-- index: nodes_pkey, flows_pkey
-- locks: those nodes; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: in a flow that is being cancelled, or that waits for its turn, nothing is released; a group releases its members when
--      it is released itself: of those that a caller cancelled before, others may have waited
update pgqueue.nodes as node set state = 'released'
where id = any(%(nodes)s::bigint[]) and state = 'waiting'
  and exists (select from pgqueue.flows where id = node.flow_id and state = 'running')
  and (node.parent_id is null
       or exists (select from pgqueue.nodes as parent where parent.id = node.parent_id and parent.state = 'released'))
returning id, kind, job_id
