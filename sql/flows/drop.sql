-- flows/drop: delete nodes of flows that ended before the retention of the history, then those flows; how many nodes.
-- index: flows_ended_at, nodes_flow, nodes_pkey, edges_pkey, node_counts_pkey, dead_jobs_pkey
-- locks: those rows
-- run by: worker upkeep
-- why: a flow with a dead job stays, for it may be retried; a flow is deleted by the run after the one that deletes its last node
with old as materialized (
    select id from pgqueue.flows as flow
    where ended_at is not null
      and coalesce(%(now)s::timestamptz, now()) - ended_at > (select history from pgqueue.retention)
      and not (state <> 'succeeded' and exists (
          select from pgqueue.nodes as node where node.flow_id = flow.id and node.state = 'failed'
          and exists (select from pgqueue.dead_jobs where id = node.job_id)))
    order by ended_at limit 100
),
few as materialized (
    select id from pgqueue.nodes where flow_id = any(array(select id from old)) limit %(limit)s::integer
),
gone as (
    delete from pgqueue.nodes where id = any(array(select id from few)) returning id
),
without_edges as (
    delete from pgqueue.edges where from_id = any(array(select id from few))
),
without_counts as (
    delete from pgqueue.node_counts where node_id = any(array(select id from few))
),
ended as (
    delete from pgqueue.flows as flow using old
    where flow.id = old.id and not exists (select from pgqueue.nodes as node where node.flow_id = flow.id)
)
select count(*) from gone
