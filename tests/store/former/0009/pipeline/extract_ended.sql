-- pipeline/extract_ended: ended jobs from the history and from the dead table, in one shape; source names the table.
-- index: none: as extract_history and extract_dead
-- locks: none
-- run by: spark.read and spark.readStream, table ended
-- why: the union converts no column, so a query for one source is planned as a query of its table
select id, queue, task, outcome, null::text as reason, priority, run_at, created_at, started_at, finished_at as ended_at,
       worker_id::text as worker_id, attempts, max_attempts, collisions, unique_key, args::text as args,
       errors::text as errors, result::text as result, ended_in, meta::text as meta, (finished_at at time zone 'UTC')::date as day,
       'history'::text as source, tableoid as part, ctid as place
from pgqueue.job_history
union all
select id, queue, task, 'dead'::text, reason, priority, run_at, created_at, started_at, died_at,
       worker_id::text, attempts, max_attempts, collisions, unique_key, args::text,
       errors::text, null::text, ended_in, meta::text, (died_at at time zone 'UTC')::date,
       'dead'::text, tableoid, ctid
from pgqueue.dead_jobs
