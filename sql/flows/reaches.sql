-- flows/reaches: which of these nodes wait, directly or not, for one of those.
-- index: edges_pkey
-- locks: none; the caller has locked the flow
-- run by: the plan that adds to flows
with recursive reached (id) as (
    select id from unnest(%(starts)s::bigint[]) as id
    union
    select edge.to_id from reached join pgqueue.edges as edge on edge.from_id = reached.id
)
select id from reached where id = any(%(ends)s::bigint[])
