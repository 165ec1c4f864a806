-- flows/postpone: leave work in flows to another transaction.
-- index: none
-- locks: none beyond the new rows; the database-wide NOTIFY lock, at commit
-- run by: the plan that ends jobs of flows
with added as (
    insert into pgqueue.flow_work (node_id, task, portion)
    select node_id, task, portion
    from unnest(%(nodes)s::bigint[], %(tasks)s::text[], %(portions)s::integer[]) as one (node_id, task, portion)
    returning id
)
select pg_notify('pgqueue.wake', 'flow') from (select from added limit 1) as one where %(tells)s::boolean
