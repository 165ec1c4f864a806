-- flows/doom: cancel these nodes and those that fail with them, as far as a bound; they, and from which of them others are left.
-- index: nodes_pkey, edges_pkey, node_counts_pkey
-- locks: those nodes, and the counts of their groups; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- why: a chain of 10,000 jobs is not cancelled in the transaction that ends its first one; the others are followed later. A node
--      is visited once, however many ways lead to it: in a graph of 5,000 nodes and 50,000 edges there are millions;
--      no join with nodes or edges, which without statistics the planner would read from end to end: offset 0 prevents it
with recursive doomed (id) as (
    select id from unnest(%(nodes)s::bigint[]) as id
    union
    select edge.to_id
    from doomed cross join lateral (select * from pgqueue.edges where from_id = doomed.id offset 0) as edge
    where edge.rule = 'cancel' and not edge.met
      and (select node.state from pgqueue.nodes as node where node.id = edge.to_id) = 'waiting'
),
few as materialized (
    select id from doomed limit %(limit)s::integer  -- PostgreSQL looks no further than that
),
ended as (
    update pgqueue.nodes set state = 'cancelled'
    where id = any(array(select id from few)) and state = 'waiting'
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
select id, flow_id, parent_id, kind, job_id,
       exists (select from pgqueue.edges as edge
               where edge.from_id = ended.id and edge.rule = 'cancel' and not edge.met and edge.to_id not in (select id from few)
                 and (select node.state from pgqueue.nodes as node where node.id = edge.to_id) = 'waiting')
from ended
