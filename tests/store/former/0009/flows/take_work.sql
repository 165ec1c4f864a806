-- flows/take_work: take one piece of the work that is left in flows; of nodes to be followed, many.
-- index: flow_work_pkey
-- locks: the taken rows; those that another transaction has locked are skipped
-- run by: worker upkeep
-- why: of nodes that were cancelled together, most lead to the same nodes
with first as materialized (
    select id, task from pgqueue.flow_work order by id limit 1 for update skip locked
),
alike as materialized (
    select id from pgqueue.flow_work
    where task = 'follow' and (select task from first) = 'follow'
    order by id limit 1000
    for update skip locked
)
delete from pgqueue.flow_work
where id = any(array(select id from first union select id from alike))
returning node_id, task, portion
