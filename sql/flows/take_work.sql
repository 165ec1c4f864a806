-- flows/take_work: take one piece of the work that is left in flows.
-- index: flow_work_pkey
-- locks: the taken row; one that another transaction has locked is skipped
-- run by: worker upkeep
delete from pgqueue.flow_work
where id = (select id from pgqueue.flow_work order by id limit 1 for update skip locked)
returning node_id, task, portion
