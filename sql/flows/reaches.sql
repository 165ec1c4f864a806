-- flows/reaches: which of these nodes wait, directly or not, for one of those.
-- index: edges_pkey
-- locks: none; the caller has locked the flow
-- run by: the plan that adds to flows
-- rights: monitor
-- why: offset 0 keeps the planner from a join that, without statistics, reads all edges for each node
with recursive reached (id) as (
    select id from unnest(%(starts)s::bigint[]) as id
    union
    select edge.to_id from reached
    cross join lateral (select to_id from pgqueue.edges where from_id = reached.id offset 0) as edge
)
select id from reached where id = any(%(ends)s::bigint[])
