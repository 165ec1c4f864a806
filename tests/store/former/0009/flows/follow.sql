-- flows/follow: follow the edges from nodes that ended, or whose first member failed; what they mean for the nodes behind.
-- index: edges_pkey, nodes_pkey
-- locks: those edges and nodes; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: a node that 100,000 others wait for is followed in portions: the last row, without a node, says that edges are left.
--      In each portion edges are met, or nodes cease to wait, and are not found by the next. There are no joins with edges
--      and nodes, which without statistics the planner would read from end to end: the arrays are sorted by node
with event as materialized (
    select node_id, state from unnest(%(nodes)s::bigint[], %(states)s::text[]) as one (node_id, state)
),
hit as materialized (
    select edge_place, to_id, effect
    from (
        select edge.place as edge_place, edge.to_id, event.state,
               case when event.state in ('succeeded', 'skipped') then case when edge.rule = 'failure' then 'skip' else 'meet' end
                    when event.state = 'failing' then case when edge.rule = 'failure' then 'meet' end
                    else case edge.rule when 'cancel' then 'cancel' when 'wait' then null else 'meet' end end as effect
        from event
        cross join lateral (select ctid as place, to_id, rule from pgqueue.edges
                            where from_id = event.node_id and not met offset 0) as edge
    ) as one
    where effect = 'meet'
       or effect is not null and (select node.state from pgqueue.nodes as node where node.id = one.to_id) = 'waiting'
    order by state = 'failing' desc
    limit %(limit)s::integer
),
met as (
    update pgqueue.edges set met = true where ctid = any(array(select edge_place from hit where effect = 'meet'))
),
changed as materialized (
    select array_agg(to_id order by to_id) as ids, array_agg(met order by to_id) as mets,
           array_agg(effect order by to_id) as effects
    from (
        select to_id, count(*) filter (where effect = 'meet') as met,
               case when bool_or(effect = 'cancel') then 2 when bool_or(effect = 'skip') then 1 else 0 end as effect
        from hit group by to_id
    ) as one
),
counted as (
    update pgqueue.nodes
    set waits_for = waits_for - (select mets from changed)[pg_catalog.width_bucket(id, (select ids from changed))]
    where id = any((select ids from changed)::bigint[])
    returning id, waits_for, state, (select effects from changed)[pg_catalog.width_bucket(id, (select ids from changed))] as effect
)
select id, case effect when 2 then 'cancel' when 1 then 'skip' else 'release' end from counted
where state = 'waiting' and (effect > 0 or waits_for = 0)
union all
select null, null from hit having count(*) = %(limit)s::integer
