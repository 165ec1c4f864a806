-- jobs/show: everything known of jobs, live or ended.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.job, JobHandle.status, JobHandle.result
-- rights: reader
select {shown}
from pgqueue.all_jobs
where id = any(%(ids)s::bigint[])
