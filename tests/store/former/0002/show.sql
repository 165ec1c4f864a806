-- show: everything known of one job, live or ended.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.job, JobHandle.status, JobHandle.result
select id, state, queue, task, args::text, priority, run_at, created_at, started_at, ended_at,
       attempts, max_attempts, unique_key, collisions, worker_id, errors::text, reason, result::text
from pgqueue.all_jobs
where id = %(id)s::bigint
