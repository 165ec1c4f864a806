-- insight/standing_heads: of each queue with ready jobs, when the job that waits longest became ready, and how many jobs are ready, up to a bound.
-- index: jobs_ready
-- locks: none
-- run by: Insight.queues
-- rights: monitor
-- why: the first job of each queue and priority is found by leaps from one to the next, 4 µs each; 2,000 leaps at most
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
line as materialized (
    select queue, pgqueue.as_datetime(min(run_at)) as oldest, greatest(%(counted)s::integer, %(in_all)s::integer / count(*) over ()) as bound
    from head group by queue
)
select queue, oldest, bound,
       (select count(*) from (select from pgqueue.jobs where status = 'ready' and jobs.queue = line.queue
                              order by -priority, run_at, id  -- as the index has them: else the table might be read
                              limit line.bound) as counted)
from line
