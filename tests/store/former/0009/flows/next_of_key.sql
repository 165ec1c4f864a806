-- flows/next_of_key: start the next flow of each key whose flow has ended; the roots of those.
-- index: flows_key, nodes_flow
-- locks: the started flows; the caller has locked the keys
-- run by: the plan that ends jobs of flows
with next as (
    select (select flow.id from pgqueue.flows as flow
            where flow.key = one.key and flow.ended_at is null order by flow.id limit 1) as id
    from unnest(%(keys)s::text[]) as one (key)
    where not exists (select from pgqueue.flows as other
                      where other.key = one.key and other.ended_at is null and other.state <> 'waiting')
),
started as (
    update pgqueue.flows as flow set state = 'running' from next where flow.id = next.id returning flow.id
)
select node.id from started join pgqueue.nodes as node on node.flow_id = started.id and node.parent_id is null
