-- flows/named: nodes of a group, by their names.
-- index: nodes_name
-- locks: none; the caller has locked the flow
-- run by: the plan that adds to flows
-- rights: monitor
select name, id, state from pgqueue.nodes where parent_id = %(parent)s::bigint and name = any(%(names)s::text[])
