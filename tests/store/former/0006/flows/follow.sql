-- flows/follow: follow the edges from nodes that ended, or whose first member failed; what they mean for the nodes behind.
-- index: edges_pkey, nodes_pkey
-- locks: those edges and nodes; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: a node that 100,000 others wait for is followed in portions: the last row, without a node, says that edges are left.
--      In each portion edges are met, or nodes cease to wait, and are not found by the next
with event as materialized (
    select node_id, state from unnest(%(nodes)s::bigint[], %(states)s::text[]) as one (node_id, state)
),
hit as materialized (
    select from_id, to_id, effect
    from (
        select edge.from_id, edge.to_id, event.state,
               case when event.state in ('succeeded', 'skipped') then case when edge.rule = 'failure' then 'skip' else 'meet' end
                    when event.state = 'failing' then case when edge.rule = 'failure' then 'meet' end
                    else case edge.rule when 'cancel' then 'cancel' when 'wait' then null else 'meet' end end as effect
        from event join pgqueue.edges as edge on edge.from_id = event.node_id
        where not edge.met
    ) as one
    where effect = 'meet'
       or effect is not null and (select node.state from pgqueue.nodes as node where node.id = one.to_id) = 'waiting'
    order by state = 'failing' desc
    limit %(limit)s::integer
),
met as (
    update pgqueue.edges as edge set met = true
    from hit where edge.from_id = hit.from_id and edge.to_id = hit.to_id and hit.effect = 'meet'
),
changed as (
    select to_id, count(*) filter (where effect = 'meet') as met, bool_or(effect = 'cancel') as cancelled,
           bool_or(effect = 'skip') as skipped
    from hit group by to_id
),
counted as (
    update pgqueue.nodes as node set waits_for = node.waits_for - changed.met
    from changed where node.id = changed.to_id
    returning node.id, node.waits_for, node.state, changed.cancelled, changed.skipped
)
select id, case when cancelled then 'cancel' when skipped then 'skip' else 'release' end from counted
where state = 'waiting' and (cancelled or skipped or waits_for = 0)
union all
select null, null from hit having count(*) = %(limit)s::integer
