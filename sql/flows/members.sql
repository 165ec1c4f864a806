-- flows/members: the members of groups, in one portion of each, that have not ended; and which groups have more portions.
-- index: nodes_flow, node_counts_pkey
-- locks: none; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- rights: monitor
select parent.id, parent.flow_id, node.id,
       exists (select from pgqueue.node_counts where node_id = parent.id and portion = %(portion)s::integer + 1)
from pgqueue.nodes as parent
left join pgqueue.nodes as node
    on node.flow_id = parent.flow_id and node.parent_id = parent.id and node.state = 'waiting'
   and node.place >= %(portion)s::integer * 512 and node.place < (%(portion)s::integer + 1) * 512
where parent.id = any(%(nodes)s::bigint[])
