-- flows/note_ended: note how nodes, or those of jobs, ended; those on which something hangs, and groups that may end now.
-- index: nodes_job, nodes_pkey, node_counts_pkey, edges_pkey
-- locks: the nodes' rows; the counts of their groups, in their order; one more count of a group, shared, skipping locked ones
-- run by: the plan that ends jobs of flows
-- why: what is given is sorted, so that what belongs to a node is found by halving. Where another portion of the group is
--      open, its last member has to wait for this transaction and looks then, so this one does not have to
with ended as (
    update pgqueue.nodes as node
    set state = case when %(nodes)s::bigint[] is null then (%(states)s::text[])[pg_catalog.width_bucket(job_id, %(jobs)s::bigint[])]
                     else (%(states)s::text[])[pg_catalog.width_bucket(id, %(nodes)s::bigint[])] end,
        result = (%(results)s::text[])[pg_catalog.width_bucket(job_id, %(jobs)s::bigint[])]::json
    where id = any(coalesce(%(nodes)s::bigint[],
                            array(select id from pgqueue.nodes where job_id = any(%(jobs)s::bigint[]))))
      and state in ('waiting', 'released')
    returning id, flow_id, parent_id, place / 512 as portion, state
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
    returning known.node_id, known.open
),
elsewhere as materialized (
    select one.node_id from (select distinct node_id from counted where open = 0) as one
    cross join lateral (select from pgqueue.node_counts as other where other.node_id = one.node_id and other.open > 0
                        order by other.portion desc limit 1 for share skip locked) as open
)
select id, flow_id, parent_id, state from ended
where parent_id is null or state in ('failed', 'cancelled') or exists (select from pgqueue.edges where from_id = ended.id)
union all
select node_id, null, null, 'closing' from counted where open = 0 and node_id <> all(array(select node_id from elsewhere))
