-- limits/queues: the queues in which jobs wait in lanes, found by skipping from queue to queue; at most the limit.
-- index: jobs_lanes
-- locks: none
-- run by: a worker with weights or a strict order that serves patterns of queues; Insight.queues, where a table is large
-- rights: monitor
with recursive line (queue, place) as (
    (select queue, 1 from pgqueue.jobs where in_lane order by queue limit 1)
    union all
    select next.queue, line.place + 1
    from line cross join lateral (
        select queue from pgqueue.jobs where in_lane and queue > line.queue order by queue limit 1) as next
    where line.place < %(limit)s::integer
)
select queue from line
