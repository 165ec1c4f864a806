-- flows/free: lock the flows of these jobs and nodes, but for those that another transaction has locked; their nodes and jobs.
-- index: nodes_job, nodes_pkey, flows_pkey
-- locks: the flows' rows, in the order of their ids; locked ones are skipped
-- run by: worker completer, worker upkeep
-- why: a transaction that keeps a flow locked holds up the jobs of that flow, and nothing else
with own as materialized (
    select id, job_id, flow_id from pgqueue.nodes where job_id = any(%(jobs)s::bigint[])
    union
    select id, job_id, flow_id from pgqueue.nodes where id = any(%(nodes)s::bigint[])
),
free as materialized (
    select id from pgqueue.flows where id = any(array(select flow_id from own))
    order by id
    for no key update skip locked
)
select own.id, own.job_id from own where flow_id = any(array(select id from free))
