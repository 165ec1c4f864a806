-- queues/drained: whether a queue refuses enqueues.
-- index: queues_pkey
-- locks: none
-- run by: Task.enqueue with a unique_key, where neither the job was added nor another one has its key
select from pgqueue.queues where name = %(queue)s::text and drained_at is not null
