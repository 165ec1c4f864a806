-- flows/renew: add jobs of a flow that have ended again, from the history, under new ids; those ids, and the jobs' states.
-- index: job_history_id, jobs_unique_key
-- locks: the keys, in their order; the new rows; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- why: a job that was cancelled before its first attempt keeps its time; a later one is that of an attempt that failed.
--      The history does not know the lanes of jobs whose tasks have limits: they get them again
with renewed as (
    insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts, unique_key, flags, {sent})
    select given.new_id, ended.queue, ended.task, ended.args, ended.priority,
           case when given.status = 'ready' and due.at > clock.now then 'scheduled' else given.status end, due.at,
           ended.max_attempts, ended.unique_key, given.flags, {sent: ended.NAME}
    from (select coalesce(%(now)s::timestamptz, now()) as now) as clock,
         unnest(%(ids)s::bigint[], %(new_ids)s::bigint[], %(statuses)s::text[], %(flags)s::smallint[])
             as given (id, new_id, status, flags)
    cross join lateral (
        select * from pgqueue.job_history where id = given.id order by finished_at desc limit 1) as ended
    cross join lateral (select case when ended.attempts > 0 then clock.now else greatest(ended.run_at, clock.now) end as at) as due
    where ended.args ->> '$not_kept' is null
    order by ended.unique_key collate "C"
    on conflict do nothing
    returning id
),
limited as materialized (
    select pgqueue.put_in_lanes(array_agg(id)) from renewed
)
select renewed.id from renewed cross join limited
