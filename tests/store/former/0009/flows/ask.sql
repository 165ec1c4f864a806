-- flows/ask: ask the workers of a flow's running jobs to stop them; how many were not asked before.
-- index: nodes_flow, jobs_pkey
-- locks: those jobs' rows, in the order of their ids; the database-wide NOTIFY lock, at commit
-- run by: PgQueue.cancel_flow
-- why: a worker that ends a job has locked its row and may wait for the flow; the caller must not have locked the flow
with running as (
    select id from pgqueue.jobs
    where id = any(array(select job_id from pgqueue.nodes
                         where flow_id = %(flow)s::bigint and state = 'released' and job_id is not null))
      and status = 'running' and not cancel_requested
    order by id
    for update
),
asked as (
    update pgqueue.jobs as job set cancel_requested = true
    from running where job.id = running.id
    returning job.id
),
told as (
    select pg_notify('pgqueue.wake', 'cancel') from (select from asked limit 1) as one
)
select count(*) from asked left join told on true
