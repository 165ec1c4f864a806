-- jobs/enqueue_now: add one job without a unique key that is ready at once, as most are, where the enqueuer knows what its queue says: what is not said is left to the table.
-- index: none
-- locks: none beyond the new row
-- run by: Task.enqueue
-- rights: producer
insert into pgqueue.jobs (queue, task, args, priority, max_attempts)
values (%(queue)s::text, %(task)s::text, %(args)s::json, %(priority)s::smallint, %(max_attempts)s::smallint)
returning id
