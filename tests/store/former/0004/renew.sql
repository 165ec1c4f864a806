-- renew: extend a worker's lease; no row: the lease is lost.
-- index: workers_pkey
-- locks: the worker's own row
-- run by: every beat
update pgqueue.workers set lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval
where id = %(worker)s::uuid
returning id
