-- worker_queues: the queues that live workers serve by name; a worker of all queues names none.
-- index: none: a row for each worker
-- locks: none
-- run by: `pgqueue queues pause` and `pgqueue enqueue --queue`
select distinct unnest(queues) from pgqueue.workers where lease_until > coalesce(%(now)s::timestamptz, now())
