-- pipeline/extract_results: jobs, live and ended, as the results of a run: key and result as JSON, the last error of a job that did not succeed, waits in seconds.
-- index: none: jobs_pkey, dead_jobs_pkey and job_history_id, by the ids that are asked for
-- locks: none
-- run by: spark.read and spark.readStream, option results
-- why: one statement reads all three, so a job that ends meanwhile is in one of them
select id as job_id, status::text as state, null::text as reason, task::text as task, meta::text as meta,
       (meta::jsonb -> 'key')::text as key, null::text as result, errors::jsonb -> -1 ->> 'type' as error_type,
       errors::jsonb -> -1 ->> 'message' as error_message, errors::jsonb -> -1 ->> 'encoded' as error_encoded, attempts::smallint,
       case when status = 'running' then extract(epoch from claimed_at - least(greatest(run_at, created_at), claimed_at))::float8 end as waited,
       null::float8 as ran, null::timestamptz as ended_at, id, null::bigint as ended_in
from pgqueue.jobs
union all
select id, 'dead', reason, task, meta::text, (meta -> 'key')::text, null, errors -> -1 ->> 'type', errors -> -1 ->> 'message',
       errors -> -1 ->> 'encoded', attempts,
       extract(epoch from started_at - least(greatest(run_at, created_at), started_at))::float8,
       extract(epoch from died_at - started_at)::float8, died_at, id, ended_in
from pgqueue.dead_jobs
union all
select id, outcome, null, task, meta::text, (meta -> 'key')::text, result::text, case when outcome <> 'succeeded' then errors -> -1 ->> 'type' end,
       case when outcome <> 'succeeded' then errors -> -1 ->> 'message' end, case when outcome <> 'succeeded' then errors -> -1 ->> 'encoded' end, attempts,
       extract(epoch from started_at - least(greatest(run_at, created_at), started_at))::float8,
       extract(epoch from finished_at - started_at)::float8, finished_at, id, ended_in
from pgqueue.job_history
