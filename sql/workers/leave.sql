-- workers/leave: take a worker off the list; its running jobs are lost then, and a trigger notes that for the sweepers.
-- index: workers_pkey
-- locks: the worker's own row
-- run by: worker stop, take
delete from pgqueue.workers
where id = %(worker)s::uuid
