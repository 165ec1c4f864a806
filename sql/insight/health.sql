-- insight/health: how many workers are alive and not quiet, and for how many seconds the longest-waiting ready job has been ready.
-- index: jobs_ready, jobs_pkey
-- locks: none
-- run by: health checks
-- rights: monitor
-- why: the first job of each queue and priority is found by leaps from one to the next, 4 µs each, so it takes as many reads
--      as there are queues and priorities, however many jobs are ready. After 2,000 leaps all ready jobs are read instead,
--      0.15 µs each, those that were enqueued first and 200,000 at most. Paused queues are left out
with recursive head as (
    (select queue, -priority as turn, run_at, 1 as place from pgqueue.jobs where status = 'ready'
     order by queue, -priority, run_at limit 1)
    union all
    select next.*, head.place + 1 from head, lateral (
        select queue, -priority as turn, run_at from pgqueue.jobs
        where status = 'ready' and (queue, -priority) > (head.queue, head.turn)
        order by queue, -priority, run_at limit 1) as next
    where head.place < 2000
),
clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
oldest as (
    select case when (select count(*) from head) < 2000 then
               (select min(run_at) from head
                where not exists (select from pgqueue.queues where name = head.queue and paused_at is not null))
           else
               (select min(run_at)
                from (select queue, run_at from pgqueue.jobs where status = 'ready' order by id limit 200000) as first
                where queue not in (select name from pgqueue.queues where paused_at is not null))
           end as run_at
)
select (select count(*) from pgqueue.workers where lease_until > clock.now and quiet is not true),
       extract(epoch from clock.now - pgqueue.as_datetime(oldest.run_at))::float8
from clock cross join oldest
