-- jobs/live_ids: which of these jobs have not ended.
-- index: jobs_pkey
-- locks: none
-- run by: JobHandle.result, PgQueue.result
-- rights: producer, monitor
select id from pgqueue.jobs where id = any(%(ids)s::bigint[])
