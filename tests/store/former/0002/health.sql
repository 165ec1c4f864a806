-- health: how many workers are alive, and for how many seconds the longest-waiting ready job has been ready.
-- index: jobs_ready
-- locks: none
-- run by: health checks
-- why: the first job of each queue and priority is found by leaps from one to the next, so it takes as many reads as
--      there are queues and priorities, however many jobs are ready. Paused queues are left out.
with recursive head as (
    (select queue, -priority as turn, run_at from pgqueue.jobs where status = 'ready'
     order by queue, -priority, run_at limit 1)
    union all
    select next.* from head, lateral (
        select queue, -priority as turn, run_at from pgqueue.jobs
        where status = 'ready' and (queue, -priority) > (head.queue, head.turn)
        order by queue, -priority, run_at limit 1) as next
),
clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
)
select (select count(*) from pgqueue.workers where lease_until > clock.now),
       (select max(extract(epoch from clock.now - run_at))::float8 from head
        where not exists (select from pgqueue.queues where name = head.queue and paused_at is not null))
from clock
