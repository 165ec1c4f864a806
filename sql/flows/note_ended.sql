-- flows/note_ended: note how nodes ended, each given by itself or by its job; those of them on which something hangs.
-- index: nodes_job, nodes_pkey, node_counts_pkey, edges_pkey
-- locks: the nodes' rows; the counts of their groups, in their order
-- run by: the plan that ends jobs of flows
-- why: of the members of a large group nothing hangs on all but a few, and for those the flow is not locked
with given as materialized (
    select coalesce(node_id, (select id from pgqueue.nodes where job_id = one.job_id)) as node_id, state, result
    from unnest(%(nodes)s::bigint[], %(jobs)s::bigint[], %(states)s::text[], %(results)s::text[])
         as one (node_id, job_id, state, result)
),
ended as (
    update pgqueue.nodes as node set state = given.state, result = given.result::jsonb
    from given where node.id = given.node_id and node.state in ('waiting', 'released')
    returning node.id, node.flow_id, node.parent_id, node.place / 512 as portion, node.state
),
changed as materialized (
    select parent_id, portion, count(*) as ended, count(*) filter (where state in ('failed', 'cancelled')) as failed
    from ended group by parent_id, portion
),
locked as materialized (
    select node_id, portion from pgqueue.node_counts
    where (node_id, portion) in (select parent_id, portion from changed)
    order by node_id, portion
    for update
),
counted as (
    update pgqueue.node_counts as known set open = known.open - changed.ended, failed = known.failed + changed.failed
    from locked join changed on changed.parent_id = locked.node_id and changed.portion = locked.portion
    where known.node_id = locked.node_id and known.portion = locked.portion
    returning known.node_id, known.portion, known.open
)
select ended.id, ended.flow_id, ended.parent_id, ended.state, counted.open = 0
from ended left join counted on counted.node_id = ended.parent_id and counted.portion = ended.portion
where counted.open = 0 or ended.state in ('failed', 'cancelled') or ended.parent_id is null
   or exists (select from pgqueue.edges where from_id = ended.id)
