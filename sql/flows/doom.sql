-- flows/doom: cancel these nodes and those that fail with them, as far as a bound; they, and which of them are the last.
-- index: nodes_pkey, edges_pkey, node_counts_pkey
-- locks: those nodes, and the counts of their groups; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: a chain of 10,000 jobs is not cancelled in the transaction that ends its first one; the last are followed later
with recursive doomed (id, depth) as (
    select id, 1 from unnest(%(nodes)s::bigint[]) as id
    union
    select edge.to_id, doomed.depth + 1
    from doomed join pgqueue.edges as edge on edge.from_id = doomed.id
    where edge.rule = 'cancel' and not edge.met and doomed.depth < %(depth)s::integer
),
farthest as materialized (
    select id, max(depth) as depth from doomed group by id
),
ended as (
    update pgqueue.nodes set state = 'cancelled'
    where id = any(array(select id from farthest)) and state = 'waiting'
    returning id, flow_id, parent_id, place / 512 as portion, kind, job_id
),
changed as materialized (
    select parent_id, portion, count(*) as ended from ended group by parent_id, portion
),
counted as (
    update pgqueue.node_counts as known set open = known.open - changed.ended, failed = known.failed + changed.ended
    from changed
    where known.node_id = any(array(select parent_id from changed))  -- for the index
      and known.node_id = changed.parent_id and known.portion = changed.portion
)
select id, flow_id, parent_id, kind, job_id, farthest.depth = %(depth)s::integer from ended join farthest using (id)
