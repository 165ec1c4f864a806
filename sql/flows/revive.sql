-- flows/revive: return dead jobs of a flow to their lines, or block them again; which.
-- index: dead_jobs_pkey, jobs_unique_key, deadlines_pkey
-- locks: the given dead jobs, in order of their ids; then the keys, in their order; their deadlines; the caller has locked the flow
-- run by: PgQueue.retry_flow
with given as (
    select id, status from unnest(%(ids)s::bigint[], %(statuses)s::text[]) as one (id, status)
),
dead as materialized (
    select * from pgqueue.dead_jobs where id = any(%(ids)s::bigint[]) order by id for update
),
revived as (
    insert into pgqueue.jobs ({carried}, {kept}, id, run_at, status, unique_key, args, errors, in_lane)
    select {carried}, {kept}, id, coalesce(%(now)s::timestamptz, now()),
           case when given.status = 'ready' and lane is not null then 'blocked' else given.status end,
           unique_key, args, errors, given.status = 'ready' and lane is not null
    from dead join given using (id)
    order by unique_key collate "C"
    on conflict do nothing
    returning id
),
undecided as (  -- it waits again: a wait that timed out may have been why it died
    delete from pgqueue.deadlines where job_id = any(array(select id from revived))
)
delete from pgqueue.dead_jobs where id in (select id from revived) returning id
