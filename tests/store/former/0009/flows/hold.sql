-- flows/hold: have nodes that have not started wait for more; which.
-- index: nodes_pkey
-- locks: those nodes; the caller has locked the flow
-- run by: the plan that adds to flows
update pgqueue.nodes as node set waits_for = node.waits_for + one.count
from unnest(%(nodes)s::bigint[], %(counts)s::integer[]) as one (id, count)
where node.id = one.id and node.state = 'waiting'
returning node.id
