-- enqueue_unique: add one job unless a live job holds its unique key.
-- index: jobs_unique_key
-- locks: waits for a transaction that is adding or ending a job of the same key
-- run by: Task.enqueue with a unique_key
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, unique_key, unique_until_started, meta)
select %(queue)s::text, %(task)s::text, %(args)s::json, %(priority)s::smallint,
       case when due.run_at > due.now then 'scheduled' else 'ready' end, due.run_at, %(max_attempts)s::smallint,
       %(unique_key)s::text, %(unique_until_started)s::boolean, %(meta)s::jsonb
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
on conflict (unique_key) where unique_key is not null do nothing
returning id
