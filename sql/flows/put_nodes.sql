-- flows/put_nodes: set the states of nodes that are to run again, their jobs, and for how many others nodes wait.
-- index: nodes_pkey
-- locks: those nodes; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- rights: producer --also flows
update pgqueue.nodes as node
set state = coalesce(given.state, node.state), waits_for = given.waits_for, job_id = coalesce(given.job_id, node.job_id),
    result = case when given.state is null then node.result end
from unnest(%(nodes)s::bigint[], %(states)s::text[], %(waits_for)s::integer[], %(jobs)s::bigint[])
     as given (id, state, waits_for, job_id)
where node.id = any(%(nodes)s::bigint[]) and node.id = given.id
