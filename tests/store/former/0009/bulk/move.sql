-- bulk/move: put jobs that are locked into another queue.
-- index: jobs_pkey
-- locks: those rows
-- run by: QueueControl.jobs
update pgqueue.jobs set queue = %(to)s::text where id = any(%(ids)s::bigint[])
