-- insight/why_node: what the node of a job, and each group that it is in, still waits for in their flow: those that failed first.
-- index: nodes_job, nodes_pkey, edges_to, nodes_flow, node_counts_pkey, dead_jobs_pkey, jobs_pkey, flows_pkey, flows_key
-- locks: none
-- run by: PgQueue.why, of a job that waits in a flow
-- rights: reader
-- why: a group starts before its members, so what the outermost one waits for comes first. Of a group that failed, the job
--      that failed is looked for in its first portion with a failure
with recursive up (id, parent_id, flow_id, state, level) as (
    select id, parent_id, flow_id, state, 0 from pgqueue.nodes where job_id = %(id)s::bigint
    union all
    select parent.id, parent.parent_id, parent.flow_id, parent.state, level + 1
    from up join pgqueue.nodes as parent on parent.id = up.parent_id
    where up.state = 'waiting'
),
unmet as (
    select up.level, edge.rule, before.*
    from up
    cross join lateral (select * from pgqueue.edges where to_id = up.id and not met limit 1000) as edge
    cross join lateral (select * from pgqueue.nodes where id = edge.from_id offset 0) as before
    where up.state = 'waiting'
    order by up.level desc, before.state not in ('failed', 'cancelled'), before.id limit 6
),
flow as (
    select flow.id, flow.state, case when flow.state = 'waiting' then (
               select min(other.id) from pgqueue.flows as other
               where other.key = flow.key and other.ended_at is null and other.id < flow.id) end as behind
    from pgqueue.flows as flow where flow.id = (select flow_id from up where level = 0)
)
select flow.id, flow.state, flow.behind, unmet.id, coalesce(unmet.name, unmet.task, unmet.kind), unmet.kind, unmet.state, unmet.rule,
       failed.job_id, live.status, dead.id is not null, dead.reason, dead.errors -> -1 ->> 'type', dead.errors -> -1 ->> 'message'
from flow
left join unmet on true
left join lateral (
    with recursive down (id, kind, job_id) as (
        select unmet.id, unmet.kind, unmet.job_id
        union all
        select member.id, member.kind, member.job_id
        from down cross join lateral (
            select one.id, one.kind, one.job_id from pgqueue.nodes as one
            where one.flow_id = flow.id and one.parent_id = down.id and one.state = 'failed'
              and one.place >= 512 * coalesce((select min(portion) from pgqueue.node_counts where node_id = down.id and failed > 0), 0)
            order by one.place limit 1) as member
        where down.kind <> 'job' and unmet.state = 'failed'
    )
    select job_id from down where job_id is not null limit 1) as failed on true
left join lateral (select status from pgqueue.jobs where id = failed.job_id offset 0) as live on true
left join lateral (select * from pgqueue.dead_jobs where id = failed.job_id offset 0) as dead on true
order by unmet.level desc, unmet.state not in ('failed', 'cancelled'), unmet.id
