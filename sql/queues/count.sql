-- queues/count: how many jobs of a queue would be purged or moved: those that wait, and the dead.
-- index: none: reads all live and dead jobs
-- locks: none
-- run by: QueueControl.preview
select (select count(*) from pgqueue.jobs where queue = %(queue)s::text and status <> 'running'),
       (select count(*) from pgqueue.jobs where queue = %(queue)s::text and status = 'running'),
       (select count(*) from pgqueue.dead_jobs where queue = %(queue)s::text)
