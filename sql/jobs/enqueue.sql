-- jobs/enqueue: add one job without a unique key, with what its queue says where the job does not; nothing: the queue is drained, or it has a bound and the enqueuer does not know that there is room.
-- index: queues_pkey
-- locks: none beyond the new row
-- run by: Task.enqueue
-- rights: producer
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, meta, expires_at, lane, in_lane, cost)
select %(queue)s::text, %(task)s::text, %(args)s::json, coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25), %(meta)s::jsonb,
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
       %(lane)s::text, case when %(lane)s::text is not null and due.run_at <= due.now then true end, %(cost)s::integer
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.drained_at is null and (setting.backlog is null or %(room)s::boolean)
returning id, priority, max_attempts
