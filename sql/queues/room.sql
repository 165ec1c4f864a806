-- queues/room: whether a queue refuses enqueues, and whether it is full: with this many more jobs, more than its bound would be ready.
-- index: queues_pkey (is_full: jobs_ready, jobs_lanes)
-- locks: none
-- run by: the plans that enqueue, of a queue that is closed or has a bound
-- rights: producer
select known.closed_at is not null, known.backlog, known.when_full, pgqueue.is_full(known.name, %(count)s::bigint)
from pgqueue.queues as known
where known.name = %(queue)s::text
