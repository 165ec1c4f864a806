-- flows/states: the state of nodes.
-- index: nodes_pkey
-- locks: none
-- run by: worker upkeep
select id, state from pgqueue.nodes where id = any(%(nodes)s::bigint[])
