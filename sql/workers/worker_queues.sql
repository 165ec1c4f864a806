-- workers/worker_queues: the queues that live workers serve by name; a worker of all queues, or of a pattern, names none.
-- index: none: a row for each worker
-- locks: none
-- run by: `pgqueue queues pause` and `pgqueue enqueue --queue`
-- rights: monitor
select distinct entry from pgqueue.workers, unnest(queues) as entry
where entry !~ '[!*]' and lease_until > coalesce(%(now)s::timestamptz, now())
