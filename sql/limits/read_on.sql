-- limits/read_on: the lanes of the next waiting jobs of a queue, and what the start of the first job of each costs.
-- index: jobs_lanes, queues_pkey, limits_pkey
-- locks: none
-- run by: worker fetcher
-- rights: monitor
-- why: where lanes have few jobs each, to read on costs a fourth of what the skips of limits/find cost. It reads some jobs only
select %(queue)s::text, lane, cost, (select paused_at from pgqueue.queues where name = %(queue)s::text) is null,
       exists (select from pgqueue.limits where name = 'queue:' || %(queue)s::text)
from (select lane, cost, lag(lane) over (order by lane) is distinct from lane as first
      from (select lane, cost from pgqueue.jobs
            where in_lane and queue = %(queue)s::text and lane > %(after)s::text
            order by queue, lane, -priority, run_at, id limit %(most)s::integer) as read) as marked
where first
limit %(limit)s::integer
