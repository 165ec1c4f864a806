-- pipeline/extract_history: jobs that succeeded or were cancelled, as Spark sees them; part and place give a row's table and page.
-- index: none: reads the day's partition, by its pages, as the select around it asks
-- locks: none
-- run by: spark.read and spark.readStream, table history
select id, queue, task, outcome, priority, run_at, created_at, started_at, finished_at,
       (finished_at at time zone 'UTC')::date as day, worker_id::text as worker_id, attempts, max_attempts, collisions,
       unique_key, args::text as args, errors::text as errors, result::text as result, ended_in,
       meta::text as meta, tableoid as part, ctid as place
from pgqueue.job_history
