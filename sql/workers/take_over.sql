-- workers/take_over: lock running jobs of these workers, for the caller to end in this transaction; return their claims.
-- index: jobs_pkey, notes_pkey, lost_workers_pkey
-- locks: the returned rows; rows that others hold locked are skipped
-- run by: worker upkeep, take
-- why: the arguments are left out, and times are held within what Python can read: nothing in a row may keep the others
--      from being ended. The first loss counts as a crash, since it is not known which claims had started; a later one if the
--      start was noted by the same worker under the same fence (crashes/start): each worker counts its fences from 1
select id, worker_id, fence, attempts, max_attempts, priority, queue, task, '{}',
       date_part('epoch', least(greatest(run_at, timestamptz '1900-01-01 00:00+00'), timestamptz '9000-01-01 00:00+00')),
       date_part('epoch', least(greatest(created_at, timestamptz '1900-01-01 00:00+00'), timestamptz '9000-01-01 00:00+00')),
       0.0::float8, null::text, flags,
       coalesce(extract(epoch from coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) - claimed_at), 0)::float8,
       coalesce(flags, 0::smallint) & 16::smallint = 0 or exists (
           select from pgqueue.notes as note
           where note.job_id = jobs.id and note.kind = 'start' and note.name = ''
             and note.value->>'worker' = jobs.worker_id::text and note.value->>'fence' = jobs.fence::text),
       (select memory from pgqueue.lost_workers as worker where worker.worker_id = jobs.worker_id)
from pgqueue.jobs
where id = any(%(ids)s::bigint[]) and status = 'running' and worker_id = any(%(workers)s::uuid[])
for update of jobs skip locked
