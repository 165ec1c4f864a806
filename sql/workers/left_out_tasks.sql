-- workers/left_out_tasks: which tasks that a worker leaves out have jobs among the first that wait in a queue which it serves, of which queue, and for how many seconds they have been noted. These tasks, and those that were noted before.
-- index: jobs_ready, jobs_lanes, unknown_tasks_pkey
-- locks: none
-- run by: worker upkeep, once a minute
-- rights: monitor
-- why: jobs that no worker runs gather at the head of their queue, so 20,000 ready ones and 20,000 in lanes are looked at, as by
--      insight/unknown_tasks, of the first 500 queues, and 100,000 in all. Where no task is wanted, no job is read
with recursive wanted as materialized (
    select task from unnest(%(tasks)s::text[]) as task
    union
    select task from pgqueue.unknown_tasks where task <> all(%(known)s::text[])
),
line (queue, place) as (
    (select queue, 1 from pgqueue.jobs where status = 'ready' and exists (select from wanted) order by queue limit 1)
    union all
    select next.queue, line.place + 1
    from line cross join lateral (
        select queue from pgqueue.jobs where status = 'ready' and queue > line.queue order by queue limit 1) as next
    where line.place < 500
),
lane (queue, place) as (
    (select queue, 1 from pgqueue.jobs where in_lane and exists (select from wanted) order by queue limit 1)
    union all
    select next.queue, lane.place + 1
    from lane cross join lateral (
        select queue from pgqueue.jobs where in_lane and queue > lane.queue order by queue limit 1) as next
    where lane.place < 500
),
waiting as (
    select line.queue, job.task
    from line cross join lateral (
        select task from pgqueue.jobs where status = 'ready' and queue = line.queue
        order by -priority, run_at, id limit 20000) as job
    where pgqueue.serves(%(queues)s::text[], line.queue)
    union all
    select lane.queue, job.task
    from lane cross join lateral (
        select task from pgqueue.jobs where in_lane and queue = lane.queue
        order by queue, lane, -priority, run_at, id limit 20000) as job
    where pgqueue.serves(%(queues)s::text[], lane.queue)
    limit 100000
)
select queue, task,
       (select extract(epoch from coalesce(%(now)s::timestamptz, now()) - pgqueue.as_datetime(since))::float8
        from pgqueue.unknown_tasks as noted where noted.queue = waiting.queue and noted.task = waiting.task)
from (select distinct queue, task from waiting where task = any(array(select task from wanted))) as waiting
order by 1, 2
