-- stacks/ask: ask the worker that runs a job for the job's stack, and remove the questions of ten minutes ago; no row: it does not run.
-- index: jobs_pkey
-- locks: the job's question, and old ones that are not locked; the database-wide NOTIFY lock, at commit
-- run by: QueueControl.stack
with clock as (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
),
removed as (
    delete from pgqueue.stacks
    where job_id = any(array(select job_id from pgqueue.stacks, clock
                             where asked_at < clock.now - interval '10 minutes' and job_id <> %(id)s::bigint
                             for update of stacks skip locked))
),
asked as (
    insert into pgqueue.stacks (job_id, worker_id, asked_at, asked_by)
    select id, worker_id, clock.now, %(by)s::text from pgqueue.jobs, clock
    where id = %(id)s::bigint and status = 'running' and worker_id is not null
    on conflict (job_id) do update
    set worker_id = excluded.worker_id, asked_at = excluded.asked_at, asked_by = excluded.asked_by, answered_at = null, stack = null
    returning worker_id, asked_at
)
select coalesce(worker.host || ':' || worker.pid, asked.worker_id::text), asked.asked_at, worker.minimum is not null,
       pg_notify('pgqueue.wake', 'asked:' || asked.worker_id)::text
from asked left join pgqueue.workers as worker on worker.id = asked.worker_id
