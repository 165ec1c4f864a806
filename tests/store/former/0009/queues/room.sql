-- queues/room: whether a queue refuses enqueues, and whether it is full: with this many more jobs, more than its bound would be ready.
-- index: queues_pkey, jobs_ready, jobs_lanes
-- locks: none
-- run by: the plans that enqueue, of a queue that is drained or has a bound
-- why: it reads as many entries of ready jobs as the bound says, at most: 10,000 in 1 ms
select known.drained_at is not null, known.backlog, known.when_full,
       case when known.backlog is not null then
           %(count)s::bigint > known.backlog or exists (
               select from (select from pgqueue.jobs where queue = %(queue)s::text and status = 'ready'
                            union all
                            select from pgqueue.jobs where queue = %(queue)s::text and in_lane) as ready
               offset greatest(known.backlog - %(count)s::bigint, 0) limit 1)
       end
from pgqueue.queues as known
where known.name = %(queue)s::text
