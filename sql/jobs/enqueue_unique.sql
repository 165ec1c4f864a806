-- jobs/enqueue_unique: add one job unless a live job holds its unique key, or its queue is drained, or has a bound and the enqueuer does not know that there is room.
-- index: jobs_unique_key, queues_pkey
-- locks: waits for a transaction that is adding or ending a job of the same key
-- run by: Task.enqueue with a unique_key
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, unique_key, unique_until_started, meta, expires_at,
                          created_at)
select %(queue)s::text, %(task)s::text, %(args)s::json, coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' else 'ready' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25), %(unique_key)s::text, %(unique_until_started)s::boolean, %(meta)s::jsonb,
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval), due.now
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.drained_at is null and (setting.backlog is null or %(room)s::boolean)
on conflict (unique_key) where unique_key is not null do nothing
returning id
