-- workers/next_queues: the next queues in which ready jobs stand, from one name on, found by reading on in the index, then by skipping.
-- index: jobs_ready
-- locks: none
-- run by: workers and takes that serve all queues and know of too many to name them
-- rights: monitor
-- why: where each queue has few jobs, reading on costs 0.3 µs a job and finds a queue with nearly each; skipping from
--      queue to queue costs 10 µs each, however many jobs a queue has. So as many jobs are read as queues are wanted,
--      and the queues that these do not show are skipped to
with recursive near as (
    (select queue from pgqueue.jobs
     where status = 'ready' and %(after)s::text is null
     order by queue limit %(limit)s::integer)
    union all
    (select queue from pgqueue.jobs
     where status = 'ready' and queue > %(after)s::text
     order by queue limit %(limit)s::integer)
),
line (queue, place) as (
    select max(queue), count(distinct queue) from near having count(*) > 0
    union all
    select next.queue, line.place + 1
    from line cross join lateral (
        select queue from pgqueue.jobs
        where status = 'ready' and queue > line.queue
        order by queue limit 1
    ) as next
    where line.place < %(limit)s::integer
)
select queue from near union select queue from line order by queue
