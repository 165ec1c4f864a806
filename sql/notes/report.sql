-- notes/report: note how far jobs are, those that their attempts still hold.
-- index: jobs_pkey, notes_pkey
-- locks: the notes
-- run by: worker upkeep, take
-- why: no join, as in end; the fence is read and not locked, since a late report is overwritten by the next attempt's
insert into pgqueue.notes (job_id, kind, name, value, at)
select id, 'progress', '', (%(values)s::text[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]::json,
       coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
from pgqueue.jobs
where id = any(%(ids)s::bigint[]) and status = 'running'
  and worker_id = (%(workers)s::uuid[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]
  and fence = (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]
on conflict (job_id, kind, name) do update set value = excluded.value, at = excluded.at
