-- take_over: lock running jobs of these workers, for the caller to end in this transaction; return their claims.
-- index: jobs_pkey
-- locks: the returned rows; rows that others hold locked are skipped
-- run by: worker upkeep, take
-- why: the arguments are left out, and times are held within what Python can read: nothing in a row may keep the others
--      from being ended
select id, worker_id, claims, attempts, max_attempts, priority, queue, task, '{}',
       least(greatest(run_at, timestamptz '1900-01-01 00:00+00'), timestamptz '9000-01-01 00:00+00'),
       least(greatest(created_at, timestamptz '1900-01-01 00:00+00'), timestamptz '9000-01-01 00:00+00'),
       0.0::float8, null::text, at_end,
       coalesce(extract(epoch from coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) - claimed_at), 0)::float8
from pgqueue.jobs
where id = any(%(ids)s::bigint[]) and status = 'running' and worker_id = any(%(workers)s::uuid[])
for update skip locked
