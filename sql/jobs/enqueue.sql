-- jobs/enqueue: add one job without a unique key, with what its queue says where the job does not; nothing: the queue is drained, or it has a bound and the enqueuer does not know that there is room.
-- index: queues_pkey
-- locks: none beyond the new row
-- run by: Task.enqueue
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, meta, expires_at)
select %(queue)s::text, %(task)s::text, %(args)s::json, coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' else 'ready' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25), %(meta)s::jsonb,
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval)
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.drained_at is null and (setting.backlog is null or %(room)s::boolean)
returning id, priority, max_attempts
