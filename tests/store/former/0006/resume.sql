-- resume: let a paused queue be claimed from again.
-- index: queues_pkey
-- locks: that queue's row
-- run by: PgQueue.resume
update pgqueue.queues set paused_at = null
where name = %(queue)s::text and paused_at is not null
returning name
