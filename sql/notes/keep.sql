-- notes/keep: note a step's result or a checkpoint, if the attempt holds its job; no row: it was superseded.
-- index: jobs_pkey, notes_pkey
-- locks: the job's row, shared: no other attempt begins before this one has committed
-- run by: Context.step, Context.checkpoint
with held as (
    select id from pgqueue.jobs
    where id = %(id)s::bigint and worker_id = %(worker)s::uuid and status = 'running' and fence = %(fence)s::integer
    for share
)
insert into pgqueue.notes (job_id, kind, name, value, at)
select id, %(kind)s::text, %(name)s::text, %(value)s::json, coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
from held
on conflict (job_id, kind, name) do update set value = excluded.value, at = excluded.at
returning job_id
