-- list: jobs that match, newest first.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.jobs
select id, state, queue, task, args::text, priority, pgqueue.as_datetime(run_at), pgqueue.as_datetime(created_at),
       pgqueue.as_datetime(started_at), pgqueue.as_datetime(ended_at),
       attempts, max_attempts, unique_key, collisions, worker_id, errors::text, reason, result::text, meta::text
from pgqueue.all_jobs
where (%(states)s::text[] is null or state = any(%(states)s::text[]))
  and (%(queue)s::text is null or queue = %(queue)s::text)
  and (%(task)s::text is null or task = %(task)s::text)
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s::text)
  and id < %(before)s::bigint
order by id desc
limit %(limit)s::integer
