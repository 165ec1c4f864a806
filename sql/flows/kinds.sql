-- flows/kinds: what nodes that wait are, and their jobs.
-- index: nodes_pkey
-- locks: none; the caller has locked the flows
-- run by: the plan that ends jobs of flows
-- rights: monitor
select id, kind, job_id from pgqueue.nodes where id = any(%(nodes)s::bigint[]) and state = 'waiting'
