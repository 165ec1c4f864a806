-- queues/resume: let paused queues be claimed from again, and drained ones take jobs; those that were either.
-- index: none (a small table is read whole; queues_pkey in a larger one)
-- locks: those queues' rows
-- run by: PgQueue.resume
-- why: the trigger on the table notifies idle workers
update pgqueue.queues set paused_at = null, drained_at = null
where name = any(%(queues)s::text[]) and (paused_at is not null or drained_at is not null)
returning name
