-- jobs/claim: take ready jobs, in order, from each queue those behind a mark, up to its quota and up to a limit for all queues.
-- index: jobs_ready, jobs_pkey, limits_pkey
-- locks: the worker's own row, shared; the claimed rows; rows that others hold locked are skipped, never waited for
-- run by: worker fetcher, take
-- rights: worker
-- why: nothing that a row holds makes this statement fail or gives an answer that Python cannot read: one such row would
--      stop every worker. So times are bounded, attempts cannot overflow, and pgqueue.instant reads what may be no time.
--      The answer of a statement that changes rows is kept in full before it is sent, so long arguments stay as they
--      are stored until then: they are sorted so, and made text by sending them. Times are sent as seconds: to read a
--      timestamp takes Python 0.3 µs, and few jobs look at theirs. Seconds are exact to the microsecond until the year 2242
with claimant as (  -- a worker off the list claims nothing; while it claims, it stays on
    select from pgqueue.workers where id = %(worker)s::uuid for key share
),
next as (
    select job.id
    from claimant cross join unnest(%(queues)s::text[], %(quotas)s::integer[], %(mark_ranks)s::smallint[],
                %(mark_run_ats)s::timestamptz[], %(mark_ids)s::bigint[])
         as line (queue, quota, mark_rank, mark_run_at, mark_id)
    cross join lateral (
        select ready.id from pgqueue.jobs as ready
        where ready.queue = line.queue and ready.status = 'ready'
          and (-ready.priority, ready.run_at, ready.id) > (line.mark_rank, line.mark_run_at, line.mark_id)
          and ready.task <> all(%(left_out)s::text[])  -- the tasks that a worker does not run
        order by -ready.priority, ready.run_at, ready.id
        limit line.quota
        for update skip locked
    ) as job
    where (select paused_at from pgqueue.queues where name = line.queue) is null  -- no join: it would change the order
      and not exists (select from pgqueue.limits where name = 'queue:' || line.queue)  -- see limits/claim
    limit %(limit)s::integer
),
claimed as (
    update pgqueue.jobs as job
    set status = 'running', attempts = least(job.attempts, 32766) + 1, fence = %(fence)s::integer,
        worker_id = %(worker)s::uuid,
        claimed_at = coalesce(%(now)s::timestamptz, now()),
        unique_key = case when job.unique_until_started then null else job.unique_key end
    where job.id = any(array(select id from next))  -- no join: see complete
    returning job.id, job.fence, job.attempts, job.max_attempts, job.priority, job.queue, job.task,
              job.args,
              date_part('epoch', least(greatest(job.run_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')) as run_at,
              date_part('epoch', least(greatest(job.created_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')) as created_at,
              case when job.attempts > 1  -- since the last revival
                   then coalesce(extract(epoch from job.claimed_at - pgqueue.instant(
                       coalesce(job.errors->-1->>'since', job.errors->(1 - job.attempts)->>'at'))), 0)
                   else 0 end::float8 as failing_seconds,
              job.meta::text as meta, job.flags,
              case when job.expires_at is not null
                   then extract(epoch from least(greatest(job.expires_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')
                                           - job.claimed_at) end::float8 as expires_in
)
select id, fence, attempts, max_attempts, priority, queue, task, args::pg_catalog.json, run_at, created_at, failing_seconds, meta, flags,
       expires_in
from (select * from claimed order by priority desc, run_at, id offset 0) as ordered
