-- flows/reopen: note that dead jobs of flows are ready again: their nodes, the groups that they are in, and the flows.
-- index: nodes_job, nodes_pkey, node_counts_pkey, flows_pkey
-- locks: those nodes; the counts of their groups, in their order; the caller has locked the flows
-- run by: PgQueue.retry, QueueControl.dead
with recursive failed (id, flow_id, parent_id, portion) as (
    select id, flow_id, parent_id, place / 512 from pgqueue.nodes
    where job_id = any(%(jobs)s::bigint[]) and state = 'failed'
    union
    select parent.id, parent.flow_id, parent.parent_id, parent.place / 512
    from failed join pgqueue.nodes as parent on parent.id = failed.parent_id
    where parent.state = 'failed'
),
reopened as (
    update pgqueue.nodes set state = 'released', result = null where id = any(array(select id from failed))
),
changed as materialized (
    select parent_id, portion, count(*) as reopened from failed group by parent_id, portion
),
locked as materialized (
    select node_id, portion from pgqueue.node_counts
    where node_id = any(array(select parent_id from changed))
      and (node_id, portion) in (select parent_id, portion from changed)
    order by node_id, portion
    for update
),
counted as (
    update pgqueue.node_counts as known
    set open = known.open + changed.reopened, failed = known.failed - changed.reopened
    from locked join changed on changed.parent_id = locked.node_id and changed.portion = locked.portion
    where known.node_id = locked.node_id and known.portion = locked.portion
)
update pgqueue.flows set state = 'running', ended_at = null
where id = any(array(select flow_id from failed)) and ended_at is not null
