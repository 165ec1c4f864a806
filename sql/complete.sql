-- complete: move finished attempts' jobs to the history; a missing id: that attempt no longer held its job.
-- index: jobs_pkey
-- locks: the finished rows
-- run by: worker completer, Context.transaction, take
with done as (
    delete from pgqueue.jobs as job
    using unnest(%(ids)s::bigint[], %(attempts)s::smallint[], %(seconds)s::float8[], %(results)s::text[])
          as ended (id, attempt, seconds, result)
    where job.id = ended.id and job.attempts = ended.attempt and job.worker_id = %(worker)s::uuid
    returning job.*, ended.seconds, ended.result
),
kept as (
    insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority,
                                     attempts, max_attempts, outcome, queue, task, unique_key, args, errors, result)
    select id, run_at, created_at, clock.now - make_interval(secs => seconds), clock.now, worker_id, collisions, priority,
           attempts, max_attempts, 'succeeded', queue, task, unique_key, args, errors, result::jsonb
    from done, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as clock
    where %(keep)s::boolean
)
select id from done
