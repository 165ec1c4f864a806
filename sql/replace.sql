-- replace: give the waiting job that holds the key the new enqueue's contents.
-- index: jobs_unique_key, queues_pkey
-- locks: that job's row
-- run by: Task.enqueue with Unique(collision="replace")
update pgqueue.jobs as job
set queue = %(queue)s::text, task = %(task)s::text, args = %(args)s::json, priority = coalesce(%(priority)s::smallint, (select priority from pgqueue.queues where name = %(queue)s::text), 0),
    max_attempts = coalesce(%(max_attempts)s::smallint, (select max_attempts from pgqueue.queues where name = %(queue)s::text), 25),
    meta = %(meta)s::jsonb, expires_at = coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
    unique_until_started = %(unique_until_started)s::boolean, run_at = due.run_at, collisions = collisions + 1,
    status = case when job.status = 'blocked' then 'blocked'
                  when due.run_at > due.now then 'scheduled' else 'ready' end
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
where unique_key = %(unique_key)s::text and status <> 'running'
returning id
