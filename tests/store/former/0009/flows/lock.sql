-- flows/lock: lock the flows of these jobs and nodes; who holds this lock decides what follows in the flow.
-- index: nodes_job, nodes_pkey, flows_pkey
-- locks: the flows' rows, in the order of their ids
-- run by: every plan that decides what follows in a flow
select id from pgqueue.flows
where id = any(array(select flow_id from pgqueue.nodes where job_id = any(%(jobs)s::bigint[])
                     union select flow_id from pgqueue.nodes where id = any(%(nodes)s::bigint[])))
order by id
for no key update
