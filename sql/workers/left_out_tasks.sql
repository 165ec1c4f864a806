-- workers/left_out_tasks: which of these tasks have jobs among the first 100 ready ones of a queue that a worker serves, and of which queue.
-- index: jobs_ready
-- locks: none
-- run by: upkeep of a worker that was told to run some tasks only, once a minute
-- rights: monitor
-- why: jobs that no worker runs gather at the head of their queue. The first 500 queues are looked at
with recursive line (queue, place) as (
    (select queue, 1 from pgqueue.jobs where status = 'ready' order by queue limit 1)
    union all
    select next.queue, line.place + 1
    from line cross join lateral (
        select queue from pgqueue.jobs where status = 'ready' and queue > line.queue order by queue limit 1) as next
    where line.place < 500
)
select distinct line.queue, job.task
from line cross join lateral (
    select task from pgqueue.jobs where status = 'ready' and queue = line.queue
    order by -priority, run_at, id limit 100) as job
where pgqueue.serves(%(queues)s::text[], line.queue) and job.task = any(%(tasks)s::text[])
order by 1, 2
