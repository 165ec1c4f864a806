-- jobs/revive: return dead jobs to their lines with all their attempts, except where a live job holds the unique key.
-- index: dead_jobs_pkey, jobs_unique_key, deadlines_pkey
-- locks: the given dead jobs, in order of their ids; then the keys, in their order, as enqueue_many does; the revived rows
-- run by: PgQueue.retry, QueueControl.dead
-- why: without the lock, a job that another retry returned meanwhile, and that has ended since, would be returned once more:
--      this statement's snapshot still shows it as dead
with dead as materialized (
    select * from pgqueue.dead_jobs
    where id = any(%(ids)s::bigint[])
    order by id
    for update
),
revived as (
    insert into pgqueue.jobs ({carried}, {kept}, id, run_at, status, unique_key, args, errors, in_lane)
    select {carried}, {kept}, id, coalesce(%(now)s::timestamptz, now()), case when lane is null then 'ready' else 'blocked' end,
           case when not %(without_key)s::boolean then unique_key end, args, errors, lane is not null
    from dead
    order by unique_key collate "C"
    on conflict do nothing
    returning id
),
undecided as (  -- it waits again: a wait that timed out may have been why it died
    delete from pgqueue.deadlines where job_id = any(array(select id from revived))
)
delete from pgqueue.dead_jobs
where id in (select id from revived)
returning id
