-- alerts/oldest_ready: the queue whose ready job waits longest, and for how many seconds that job has been ready; of one queue or of all.
-- index: jobs_ready
-- locks: none
-- run by: worker upkeep, drain
-- rights: monitor
-- why: the first job of each queue and priority is found by leaps from one to the next, as in health: 4 µs each. After 2,000
--      leaps the ready jobs that were enqueued first are read instead, 200,000 at most. Paused queues are left out
with recursive head as (
    (select queue, -priority as turn, run_at, 1 as place from pgqueue.jobs
     where status = 'ready' and queue >= coalesce(%(queue)s::text, '')
     order by queue, -priority, run_at limit 1)
    union all
    select next.*, head.place + 1 from head, lateral (
        select queue, -priority as turn, run_at from pgqueue.jobs
        where status = 'ready' and (queue, -priority) > (head.queue, head.turn)
        order by queue, -priority, run_at limit 1) as next
    where head.place < 2000 and (%(queue)s::text is null or head.queue = %(queue)s::text)
),
found as (
    select queue, run_at from head where (select count(*) from head) < 2000
    union all
    select queue, run_at
    from (select queue, run_at from pgqueue.jobs where status = 'ready' order by id limit 200000) as first
    where (select count(*) from head) >= 2000
)
select queue, extract(epoch from coalesce(%(now)s::timestamptz, now()) - pgqueue.as_datetime(run_at))::float8
from found
where (%(queue)s::text is null or queue = %(queue)s::text)
  and not exists (select from pgqueue.queues as known where known.name = found.queue and known.paused_at is not null)
order by run_at limit 1
