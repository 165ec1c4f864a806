-- jobs/show: everything known of jobs, live or ended.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.job, JobHandle.status, JobHandle.result
-- rights: reader
select id, state, queue, task, args::text, priority, pgqueue.as_datetime(run_at), pgqueue.as_datetime(created_at),
       pgqueue.as_datetime(started_at), pgqueue.as_datetime(ended_at),
       attempts, max_attempts, unique_key, collisions, worker_id, errors::text, reason, result::text, meta::text
from pgqueue.all_jobs
where id = any(%(ids)s::bigint[])
