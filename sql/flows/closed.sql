-- flows/closed: which of these groups have no open member, and whether one has failed.
-- index: nodes_pkey, node_counts_pkey
-- locks: none; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- rights: monitor
select id, flow_id, exists (select from pgqueue.node_counts where node_id = node.id and failed > 0)
from pgqueue.nodes as node
where id = any(%(nodes)s::bigint[]) and state = 'released'
  and not exists (select from pgqueue.node_counts where node_id = node.id and open > 0)
