-- jobs/known_task: what workers have said of a task, and the lane of a job of it with these arguments; always one row.
-- index: none
-- locks: none
-- run by: PgQueue.enqueue_named
-- rights: producer
select queue, priority, max_attempts, arguments, lane, cost from pgqueue.known_task(%(task)s::text, %(args)s::jsonb)
