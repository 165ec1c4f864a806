-- enqueue: add one job without a unique key.
-- index: none
-- locks: none beyond the new row
-- run by: Task.enqueue
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, meta)
select %(queue)s::text, %(task)s::text, %(args)s::json, %(priority)s::smallint,
       case when due.run_at > due.now then 'scheduled' else 'ready' end, due.run_at, %(max_attempts)s::smallint,
       %(meta)s::jsonb
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
returning id
