-- flows/note_members: note that members of groups succeeded, for which no other node waits; the groups that may end now.
-- index: nodes_job, node_counts_pkey
-- locks: the nodes' rows; the counts of their groups, in their order; one more count of a group, shared, skipping locked ones
-- run by: the plan that ends jobs of flows
-- why: most jobs of a large group end here. It does what note_ended does, and looks for no edges and failures, of which such
--      members have none. Where another portion of the group is open, its last member has to wait for this transaction and
--      looks then, so this one does not have to: until the end of a large group, the flow is not locked for it
with ended as (
    update pgqueue.nodes
    set state = 'succeeded', result = (%(results)s::text[])[pg_catalog.width_bucket(job_id, %(jobs)s::bigint[])]::json
    where job_id = any(%(jobs)s::bigint[]) and state in ('waiting', 'released')
    returning parent_id, place / 512 as portion
),
changed as materialized (
    select parent_id, portion, count(*) as ended from ended group by parent_id, portion
),
locked as materialized (
    select node_id, portion from pgqueue.node_counts
    where (node_id, portion) in (select parent_id, portion from changed)
    order by node_id, portion
    for update
),
counted as (
    update pgqueue.node_counts as known set open = known.open - changed.ended
    from locked join changed on changed.parent_id = locked.node_id and changed.portion = locked.portion
    where known.node_id = locked.node_id and known.portion = locked.portion
    returning known.node_id, known.open
),
elsewhere as materialized (
    select one.node_id from (select distinct node_id from counted where open = 0) as one
    cross join lateral (select from pgqueue.node_counts as other where other.node_id = one.node_id and other.open > 0
                        order by other.portion desc limit 1 for share skip locked) as open
)
select node_id from counted where open = 0 and node_id <> all(array(select node_id from elsewhere))
