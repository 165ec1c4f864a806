-- queues/defaults: what time the database has; and of each queue that has them, priority and attempts of its jobs, whether it is closed, and whether it has a bound; and whether the role may choose the ids of jobs.
-- index: none: reads a row for each queue that was paused, closed or given settings
-- locks: none
-- run by: the plans that enqueue many jobs or flows
-- rights: producer
select clock.now, queue.name, queue.priority, queue.max_attempts, queue.closed_at is not null,
       queue.backlog is not null, clock.may_number
from (select coalesce(%(now)s::timestamptz, now()) as now,
             pg_catalog.has_column_privilege('pgqueue.jobs', 'id', 'insert') as may_number) as clock
left join pgqueue.queues as queue
  on queue.priority is not null or queue.max_attempts is not null or queue.closed_at is not null
     or queue.backlog is not null
