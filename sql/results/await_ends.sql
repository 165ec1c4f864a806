-- results/await_ends: have the ends of jobs notified; a missing id: the job has ended, was never there, or is locked.
-- index: jobs_pkey
-- locks: the marked rows; locked ones are skipped; where a ready job is marked and a worker is idle, the NOTIFY lock, at commit
-- run by: JobHandle.result, PgQueue.result and their awaited twins
-- why: a claim skips a row that this statement holds locked, and an idle worker that found nothing would look again only
--      when it polls: it is notified after the lock is gone
with seen as materialized (
    select id, coalesce(flags, 0::smallint) & 1::smallint = 1 as is_marked from pgqueue.jobs where id = any(%(ids)s::bigint[])
),
found as materialized (
    select id, status from pgqueue.jobs
    where id = any(array(select id from seen where not is_marked)) and coalesce(flags, 0::smallint) & 1::smallint = 0
    order by id
    for no key update skip locked
),
marked as (
    update pgqueue.jobs set flags = coalesce(flags, 0::smallint) | 1::smallint
    where id = any(array(select id from found))
),
told as (
    select pg_catalog.pg_notify('pgqueue.wake', '')
    where exists (select from found where status = 'ready') and exists (select from pgqueue.workers where idle)
)
select id from found left join told on true
union all
select id from seen where is_marked
