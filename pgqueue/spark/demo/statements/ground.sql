-- ground: return the day, and whether this queue was ever used for real jobs.
-- index: job_history_id, dead_jobs_pkey
-- locks: none
-- run by: pgqueue pipeline generate
select (now() at time zone 'UTC')::date,
       pg_sequence_last_value('pgqueue.jobs_id_seq') is not null
       or exists (select from pgqueue.workers)
       or coalesce((select min(id) from pgqueue.job_history) < %(first_id)s::bigint, false)
       or coalesce((select min(id) from pgqueue.dead_jobs) < %(first_id)s::bigint, false)
