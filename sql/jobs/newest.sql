-- jobs/newest: the newest jobs in any state, with all that is recorded of them.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: pgqueue.testing
-- rights: reader
select id, state, queue, task, args::text, priority, pgqueue.as_datetime(run_at), pgqueue.as_datetime(created_at),
       pgqueue.as_datetime(started_at), pgqueue.as_datetime(ended_at),
       attempts, max_attempts, unique_key, collisions, worker_id, errors::text, reason, result::text, meta::text
from pgqueue.all_jobs
order by id desc
limit %(limit)s::integer
