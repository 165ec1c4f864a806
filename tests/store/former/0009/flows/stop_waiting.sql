-- flows/stop_waiting: what waits for the retry of these nodes is cancelled instead.
-- index: edges_pkey
-- locks: those edges; the caller has locked the flows
-- run by: worker upkeep
update pgqueue.edges set rule = 'cancel' where from_id = any(%(nodes)s::bigint[]) and rule = 'wait'
