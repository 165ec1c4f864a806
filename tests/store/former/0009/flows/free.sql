-- flows/free: lock the flows of these jobs and nodes, and their keys, but for locked ones; their nodes and jobs.
-- index: nodes_job, nodes_pkey, flows_pkey
-- locks: the flows' rows, in the order of their ids, and an advisory lock for each key, as lock_key; locked ones are skipped
-- run by: worker completer, worker upkeep
-- why: a transaction that keeps a flow locked holds up the jobs of that flow, and nothing else; one that added a flow of a
--      key holds up the flows of that key
with own as materialized (
    select id, job_id, flow_id from pgqueue.nodes where job_id = any(%(jobs)s::bigint[])
    union
    select id, job_id, flow_id from pgqueue.nodes where id = any(%(nodes)s::bigint[])
),
free as materialized (
    select id, key from pgqueue.flows where id = any(array(select flow_id from own))
    order by id
    for no key update skip locked
),
ours as materialized (
    select id from free where key is null or pg_try_advisory_xact_lock(hashtextextended('pgqueue flow ' || key, 0))
)
select own.id, own.job_id from own where flow_id = any(array(select id from ours))
