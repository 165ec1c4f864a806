-- jobs/enqueue_unique: add one job unless a live job holds its unique key, or its queue is drained, or has a bound and the enqueuer does not know that there is room.
-- index: jobs_unique_key, queues_pkey
-- locks: waits for a transaction that is adding or ending a job of the same key
-- run by: Task.enqueue with a unique_key
-- rights: producer
-- why: to name the column of the key here, a producer would need the right to read all keys
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, unique_key, unique_until_started, meta, expires_at,
                          created_at, lane, in_lane, cost)
select %(queue)s::text, %(task)s::text, %(args)s::json, coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25), %(unique_key)s::text, %(unique_until_started)s::boolean, %(meta)s::jsonb,
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval), due.now,
       %(lane)s::text, case when %(lane)s::text is not null and due.run_at <= due.now then true end, %(cost)s::integer
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.drained_at is null and (setting.backlog is null or %(room)s::boolean)
on conflict do nothing
returning id
