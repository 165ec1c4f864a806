-- signals/wait: block jobs whose attempts wait; a missing id: no longer held, asked to cancel, or its signal is there.
-- index: jobs_pkey, signals_pkey, deadlines_pkey, waits_pkey
-- locks: the blocked rows, their new rows of waits and deadlines
-- run by: worker completer, worker upkeep, take, after signals/lock
-- why: no join, as in end. The attempt is not spent. The first deadline of a wait holds for all later attempts. The job has been started, so it
--      does not expire any more
with blocked as (
    update pgqueue.jobs as job
    set status = 'blocked', attempts = attempts - 1, worker_id = null, claimed_at = null, expires_at = null
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
          and fence = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
          and not cancel_requested
          and not exists (
              select from pgqueue.signals
              where target = (%(targets)s::text[])[pg_catalog.width_bucket(job.id, %(ids)s::bigint[])]
                and name = (%(names)s::text[])[pg_catalog.width_bucket(job.id, %(ids)s::bigint[])])
    returning id, pg_catalog.width_bucket(id, %(ids)s::bigint[]) as place
),
judged as (
    select id, (%(reasons)s::text[])[place] as reason,
           coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
               + pg_catalog.make_interval(secs => (%(timeouts)s::float8[])[place]) as until
    from blocked
),
dated as (
    insert into pgqueue.deadlines (job_id, waits_for, until)
    select id, reason, until from judged where until is not null
    on conflict do nothing
),
noted as (
    insert into pgqueue.waits (waits_for, job_id, until)
    select reason, id, coalesce((select deadline.until from pgqueue.deadlines as deadline
                                 where deadline.job_id = judged.id and deadline.waits_for = judged.reason), until)
    from judged
    on conflict (waits_for, job_id) do update set until = excluded.until
)
select id, 'blocked' from blocked
