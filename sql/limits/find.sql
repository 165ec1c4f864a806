-- limits/find: the next lanes in which jobs wait, with the queue, what the start of the first job costs, since when it is due and its task, whether it may be claimed, and whether the queue is limited as a whole.
-- index: jobs_lanes, queues_pkey, limits_pkey
-- locks: none
-- run by: worker fetcher
-- rights: monitor
-- why: it skips from lane to lane, however many jobs a lane has, and past the lanes of a queue that is not asked for
with recursive lane (queue, lane, cost, run_at, task, place) as (
    (select queue, lane, cost, run_at, task, 1 from pgqueue.jobs
     where in_lane and (queue, lane) > (%(after_queue)s::text, %(after_lane)s::text)
     order by queue, lane, -priority, run_at, id limit 1)
    union all
    select next.queue, next.lane, next.cost, next.run_at, next.task, lane.place + 1
    from lane cross join lateral (
        (select other.queue, other.lane, other.cost, other.run_at, other.task from pgqueue.jobs as other
         where (%(queues)s::text[] is null or lane.queue = any(%(queues)s::text[]))
           and other.in_lane and (other.queue, other.lane) > (lane.queue, lane.lane)
         order by other.queue, other.lane, -other.priority, other.run_at, other.id limit 1)
        union all
        (select other.queue, other.lane, other.cost, other.run_at, other.task from pgqueue.jobs as other
         where lane.queue <> all(%(queues)s::text[])
           and other.in_lane and other.queue > lane.queue  -- no text stands after all others in every collation
         order by other.queue, other.lane, -other.priority, other.run_at, other.id limit 1)) as next
    where lane.place < %(limit)s::integer
)
select queue, lane, cost,
       (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
       and queue <> all(array(select name from pgqueue.queues
                              where name = any(array(select distinct queue from lane)) and paused_at is not null)),
       'queue:' || queue = any(array(select name from pgqueue.limits
                                     where name = any(array(select distinct 'queue:' || queue from lane)))),
       date_part('epoch', greatest(run_at, '1900-01-01 00:00+00')), task
from lane
