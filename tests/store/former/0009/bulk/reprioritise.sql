-- bulk/reprioritise: give jobs that are locked another priority.
-- index: jobs_pkey
-- locks: those rows
-- run by: QueueControl.jobs
update pgqueue.jobs set priority = %(priority)s::smallint where id = any(%(ids)s::bigint[])
