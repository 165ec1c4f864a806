-- pipeline/extract_jobs: jobs that have not ended, as Spark sees them; part and place give a row's table and page.
-- index: none: all of them
-- locks: none
-- run by: spark.read, table jobs
select id, queue, task, status::text as status, priority::smallint as priority, run_at, created_at, claimed_at,
       worker_id::text as worker_id, attempts, max_attempts::smallint as max_attempts, collisions, fence,
       unique_until_started, cancel_requested, unique_key, args::text as args, errors::text as errors,
       meta::text as meta, tableoid as part, ctid as place
from pgqueue.jobs
