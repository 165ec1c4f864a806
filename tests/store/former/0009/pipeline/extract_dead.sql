-- pipeline/extract_dead: dead jobs, as Spark sees them; part and place give a row's table and page.
-- index: none: reads all of them, or those of a range of transactions, as the select around it asks
-- locks: none
-- run by: spark.read and spark.readStream, table dead
select id, queue, task, reason, priority, run_at, created_at, started_at, died_at,
       (died_at at time zone 'UTC')::date as day, worker_id::text as worker_id, attempts, max_attempts, collisions,
       unique_key, args::text as args, errors::text as errors, ended_in,
       meta::text as meta, tableoid as part, ctid as place
from pgqueue.dead_jobs
