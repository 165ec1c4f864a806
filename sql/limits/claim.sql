-- limits/claim: take waiting jobs, in order, from each lane those behind a mark, up to its quota; of a queue that is itself limited, its ready jobs.
-- index: jobs_lanes, jobs_ready, jobs_pkey
-- locks: the worker's own row, shared; the claimed rows; rows that others hold locked are skipped, never waited for
-- run by: a claim from lanes, in the same transaction
-- rights: worker
-- why: as in claim, nothing that a row holds makes this statement fail
with claimant as (  -- a worker off the list claims nothing; while it claims, it stays on
    select from pgqueue.workers where id = %(worker)s::uuid for key share
),
line as (
    select queue, lane, quota, inside,
           coalesce(mark_rank, -101) as mark_rank, coalesce(mark_run_at, '-infinity') as mark_run_at, coalesce(mark_id, 0) as mark_id
    from claimant cross join unnest(%(queues)s::text[], %(lanes)s::text[], %(quotas)s::integer[], %(insides)s::boolean[],
                %(mark_ranks)s::smallint[], %(mark_run_ats)s::timestamptz[], %(mark_ids)s::bigint[])  -- without marks these are empty
         as line (queue, lane, quota, inside, mark_rank, mark_run_at, mark_id)
    where queue <> all(array(select name from pgqueue.queues where name = any(%(queues)s::text[]) and paused_at is not null))
),
waiting as (
    select job.id
    from line cross join lateral (
        select waiting.id from pgqueue.jobs as waiting
        where waiting.in_lane and waiting.queue = line.queue and waiting.lane = line.lane
          and (-waiting.priority, waiting.run_at, waiting.id) > (line.mark_rank, line.mark_run_at, line.mark_id)
          and waiting.id <> all(%(passed)s::bigint[])  -- those that a worker passes over: a claim of each was refused
          and waiting.task <> all(%(left_out)s::text[])  -- the tasks that a worker does not run
        order by waiting.queue, waiting.lane, -waiting.priority, waiting.run_at, waiting.id
        limit line.quota
        for update skip locked
    ) as job
    where line.inside
      and (%(left_out)s::text[] = '{}' or not exists (  -- no job of an ordered lane goes past one that this worker does not run
          select from (
              select head.task from pgqueue.jobs as head
              where head.in_lane and head.queue = line.queue and head.lane = line.lane
              order by head.queue, head.lane, -head.priority, head.run_at, head.id limit 1) as head
          where head.task = any(%(left_out)s::text[])
            and exists (select from pgqueue.limited_tasks where task = head.task and ordered)))
),
ready as (
    select job.id
    from line cross join lateral (
        select ready.id from pgqueue.jobs as ready
        where ready.queue = line.queue and ready.status = 'ready' and ready.id <> all(%(passed)s::bigint[])
          and (-ready.priority, ready.run_at, ready.id) > (line.mark_rank, line.mark_run_at, line.mark_id)
          and ready.task <> all(%(left_out)s::text[])
        order by -ready.priority, ready.run_at, ready.id
        limit line.quota
        for update skip locked
    ) as job
    where not line.inside
),
claimed as (
    update pgqueue.jobs as job
    set status = 'running', attempts = least(job.attempts, 32766) + 1, fence = %(fence)s::integer,
        worker_id = %(worker)s::uuid,
        claimed_at = coalesce(%(now)s::timestamptz, now()),
        unique_key = case when job.unique_until_started then null else job.unique_key end,
        lane = coalesce(job.lane, ''), in_lane = null,
        claim_number = (select pg_catalog.nextval('pgqueue.limited_claims'))  -- one for the whole statement
    where job.id = any(array(select id from waiting union all select id from ready))
    returning job.id, job.fence, job.attempts, job.max_attempts, job.priority, job.queue, job.task,
              job.args,
              date_part('epoch', least(greatest(job.run_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')) as run_at,
              date_part('epoch', least(greatest(job.created_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')) as created_at,
              case when job.attempts > 1
                   then coalesce(extract(epoch from job.claimed_at - pgqueue.instant(
                       coalesce(job.errors->-1->>'since', job.errors->(1 - job.attempts)->>'at'))), 0)
                   else 0 end::float8 as failing_seconds,
              job.meta::text as meta, job.flags,
              case when job.expires_at is not null
                   then extract(epoch from least(greatest(job.expires_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00')
                                           - job.claimed_at) end::float8 as expires_in,
              job.lane, job.cost, job.claim_number
)
select id, fence, attempts, max_attempts, priority, queue, task, args::pg_catalog.json, run_at, created_at, failing_seconds, meta, flags,
       expires_in, lane, cost, claim_number
from (select * from claimed order by priority desc, run_at, id offset 0) as ordered
