-- jobs/enqueue_unique: add one job unless a live job holds its unique key, or its queue is closed, or has a bound and the enqueuer does not know that there is room.
-- index: jobs_unique_key, queues_pkey
-- locks: waits for a transaction that is adding or ending a job of the same key
-- run by: Task.enqueue with a unique_key
-- rights: producer
-- why: to name the column of the key here, a producer would need the right to read all keys
insert into pgqueue.jobs ({given}, {limited}, {key}, created_at, priority, status, run_at, max_attempts, expires_at, in_lane)
select {given: %(NAME)s::TYPE}, {limited: %(NAME)s::TYPE}, {key: %(NAME)s::TYPE}, due.now,
       coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25),
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
       case when %(lane)s::text is not null and due.run_at <= due.now then true end
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.closed_at is null and (setting.backlog is null or %(room)s::boolean)
on conflict do nothing
returning id
