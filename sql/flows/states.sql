-- flows/states: the state of nodes, and whether their flow runs.
-- index: nodes_pkey, flows_pkey
-- locks: none; the caller has locked the flows
-- run by: worker upkeep
-- rights: monitor
select id, state, (select state from pgqueue.flows where id = node.flow_id) = 'running'
from pgqueue.nodes as node where id = any(%(nodes)s::bigint[])
