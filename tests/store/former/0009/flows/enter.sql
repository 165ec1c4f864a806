-- flows/enter: release those members of a group, in one portion of it, that wait for no other; which, and whether more follow.
-- index: nodes_flow
-- locks: those nodes; the caller has locked the flow
-- run by: the plan that ends jobs of flows
with entered as (
    update pgqueue.nodes as node set state = 'released'
    from pgqueue.nodes as parent
    where parent.id = %(node)s::bigint and node.flow_id = parent.flow_id and node.parent_id = parent.id
      and node.place >= %(portion)s::integer * 512 and node.place < (%(portion)s::integer + 1) * 512
      and node.waits_for = 0 and node.state = 'waiting'
    returning node.id, node.kind, node.job_id, parent.kind = 'workflow' as may_have_waited
)
select id, kind, job_id, may_have_waited from entered
union all
select null, null, null, null from pgqueue.node_counts
where node_id = %(node)s::bigint and portion = %(portion)s::integer + 1
