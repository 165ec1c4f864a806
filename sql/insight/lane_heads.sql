-- insight/lane_heads: the lanes in which jobs wait, and when the job of each that waits longest became ready; paused queues are left out.
-- index: jobs_lanes
-- locks: none
-- run by: Insight.health
-- rights: monitor
-- why: the first job of each lane and priority is found by leaps from one to the next, 10 µs each; 2,000 leaps at most
with recursive head as (
    (select queue, lane, -priority as turn, run_at, 1 as place from pgqueue.jobs where in_lane
     order by queue, lane, -priority, run_at limit 1)
    union all
    select next.*, head.place + 1 from head, lateral (
        select queue, lane, -priority as turn, run_at from pgqueue.jobs
        where in_lane and (queue, lane, -priority) > (head.queue, head.lane, head.turn)
        order by queue, lane, -priority, run_at limit 1) as next
    where head.place < 2000
)
select queue, lane, pgqueue.as_datetime(min(run_at)) from head
where not exists (select from pgqueue.queues where name = head.queue and paused_at is not null)
group by queue, lane
