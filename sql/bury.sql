-- bury: move attempts' jobs to the dead table; a missing id: that attempt no longer held its job.
-- index: jobs_pkey
-- locks: the buried rows
-- run by: worker completer, take
with done as (
    delete from pgqueue.jobs as job
    using unnest(%(ids)s::bigint[], %(attempts)s::smallint[], %(seconds)s::float8[], %(reasons)s::text[], %(errors)s::text[])
          as ended (id, attempt, seconds, reason, error)
    where job.id = ended.id and job.attempts = ended.attempt and job.worker_id = %(worker)s::uuid
    returning job.*, ended.seconds, ended.reason, ended.error
)
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                               attempts, max_attempts, reason, queue, task, unique_key, args, errors)
select id, run_at, created_at, clock.now - make_interval(secs => seconds), clock.now, worker_id, collisions, priority,
       attempts, max_attempts, reason, queue, task, unique_key, args,
       coalesce(errors, '[]') || (error::jsonb || jsonb_build_object('at', clock.now))
from done, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock
returning id
