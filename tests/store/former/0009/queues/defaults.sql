-- queues/defaults: what time the database has; and of each queue that has them, priority and attempts of its jobs, whether it is drained, and whether it has a bound.
-- index: none: reads a row for each queue that was paused, drained or given settings
-- locks: none
-- run by: the plans that enqueue many jobs or flows
select clock.now, queue.name, queue.priority, queue.max_attempts, queue.drained_at is not null,
       queue.backlog is not null
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
left join pgqueue.queues as queue
  on queue.priority is not null or queue.max_attempts is not null or queue.drained_at is not null
     or queue.backlog is not null
