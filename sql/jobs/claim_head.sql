-- jobs/claim_head: the job that a claim of one job would take from these queues, behind a mark; a claim of it was refused.
-- index: jobs_ready
-- locks: the row, until the statement ends; rows that others hold locked are skipped, as by claim
-- run by: worker fetcher, after the database has refused a claim of one job
select job.id, job.queue, job.task, -job.priority,
       date_part('epoch', least(greatest(job.run_at, '1900-01-01 00:00+00'), '9000-01-01 00:00+00'))
from unnest(%(queues)s::text[], %(mark_ranks)s::smallint[], %(mark_run_ats)s::timestamptz[], %(mark_ids)s::bigint[])
     as line (queue, mark_rank, mark_run_at, mark_id)
cross join lateral (
    select ready.* from pgqueue.jobs as ready
    where ready.queue = line.queue and ready.status = 'ready'
      and (-ready.priority, ready.run_at, ready.id) > (line.mark_rank, line.mark_run_at, line.mark_id)
      and ready.task <> all(%(left_out)s::text[])
    order by -ready.priority, ready.run_at, ready.id
    limit 1
    for update skip locked
) as job
where (select paused_at from pgqueue.queues where name = line.queue) is null  -- no join: see claim
  and not exists (select from pgqueue.limits where name = 'queue:' || line.queue)
limit 1
