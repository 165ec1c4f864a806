-- revive: return dead jobs to their lines with all their attempts, except where a live job holds the unique key.
-- index: dead_jobs_pkey, jobs_unique_key
-- locks: the revived rows
-- run by: PgQueue.retry, PgQueue.retry_dead
with revived as (
    insert into pgqueue.jobs (id, run_at, created_at, collisions, priority, max_attempts, status,
                              queue, task, unique_key, args, errors)
    select id, coalesce(%(now)s::timestamptz, now()), created_at, collisions, priority, max_attempts, 'ready',
           queue, task, unique_key, args, errors
    from pgqueue.dead_jobs
    where id = any(%(ids)s::bigint[])
    on conflict do nothing
    returning id
)
delete from pgqueue.dead_jobs
where id in (select id from revived)
returning id
