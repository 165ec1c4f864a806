-- leave: take a worker off the list; whatever it still holds becomes anybody's (a trigger notes its departure).
-- index: workers_pkey
-- locks: the worker's own row
-- run by: worker stop, take
delete from pgqueue.workers
where id = %(worker)s::uuid
