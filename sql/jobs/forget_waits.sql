-- jobs/forget_waits: remove the reasons of jobs that have ended.
-- index: waits_job_id
-- locks: those rows
-- run by: PgQueue.cancel of a blocked job
delete from pgqueue.waits where job_id = any(%(ids)s::bigint[])
