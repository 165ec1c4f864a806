-- jobs/enqueue: add one job without a unique key, with what its queue says where the job does not; nothing: the queue is closed, or it has a bound and the enqueuer does not know that there is room.
-- index: queues_pkey
-- locks: none beyond the new row
-- run by: Task.enqueue
-- rights: producer
insert into pgqueue.jobs ({given}, {limited}, priority, status, run_at, max_attempts, expires_at, in_lane)
select {given: %(NAME)s::TYPE}, {limited: %(NAME)s::TYPE},
       coalesce(%(priority)s::smallint, setting.priority, 0),
       case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
       coalesce(%(max_attempts)s::smallint, setting.max_attempts, 25),
       coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
       case when %(lane)s::text is not null and due.run_at <= due.now then true end
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
left join pgqueue.queues as setting on setting.name = %(queue)s::text
where setting.closed_at is null and (setting.backlog is null or %(room)s::boolean)
returning id, priority, max_attempts
