-- limits/read_on: the lanes of the next waiting jobs of a queue, what the start of the first job of each costs, since when it is due and its task.
-- index: jobs_lanes, queues_pkey, limits_pkey
-- locks: none
-- run by: worker fetcher
-- rights: monitor
-- why: where lanes have few jobs each, to read on costs a fourth of what the skips of limits/find cost. It reads some jobs only
select %(queue)s::text, lane, cost, (select paused_at from pgqueue.queues where name = %(queue)s::text) is null,
       exists (select from pgqueue.limits where name = 'queue:' || %(queue)s::text),
       date_part('epoch', greatest(run_at, '1900-01-01 00:00+00')), task
from (select lane, cost, run_at, task, lag(lane) over (order by lane) is distinct from lane as first
      from (select lane, cost, run_at, task from pgqueue.jobs
            where in_lane and queue = %(queue)s::text and lane > %(after)s::text
            order by queue, lane, -priority, run_at, id limit %(most)s::integer) as read) as marked
where first
limit %(limit)s::integer
