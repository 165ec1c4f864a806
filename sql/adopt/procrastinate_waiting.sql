-- adopt/procrastinate_waiting: lock and read the next of Procrastinate's waiting jobs; skip those that its workers are fetching.
-- index: none
-- locks: the rows it returns; its workers skip them until the transaction ends
-- run by: pgqueue adopt procrastinate
select id, task_name::text, queue_name::text, priority,
       case when scheduled_at > coalesce(%(now)s::timestamptz, now()) then scheduled_at end,
       queueing_lock, lock, convert_to(args::text, 'UTF8'), attempts, false
from procrastinate_jobs
where status = 'todo' and id > %(after)s::bigint
  and (%(tasks)s::text[] is null or task_name = any (%(tasks)s::text[]))
  and (%(queues)s::text[] is null or queue_name = any (%(queues)s::text[]))
order by id
limit %(limit)s::bigint
for update skip locked
