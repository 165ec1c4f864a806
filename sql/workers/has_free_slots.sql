-- workers/has_free_slots: whether another worker that serves a queue, and may know a task, waits for jobs and has this many free slots.
-- index: none: reads the workers
-- locks: none
-- run by: a worker whose next job waits for several slots, once a second
-- rights: monitor
select exists (
    select from pgqueue.workers as other
    where other.id <> %(worker)s::uuid and other.lease_until > coalesce(%(now)s::timestamptz, now())
      and other.idle and other.minimum is not null and other.quiet is not true and other.ask_end is null
      and pgqueue.serves(other.queues, %(queue)s::text) and (other.tasks is null or %(task)s::text = any(other.tasks))
      and coalesce(other.slots, other.concurrency) - coalesce(other.taken, 0) >= least(%(slots)s::integer, other.concurrency))
