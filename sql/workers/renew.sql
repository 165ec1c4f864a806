-- workers/renew: extend a worker's lease, say how it is and what it does, and hear what it is asked to do; no row: the lease is lost.
-- index: workers_pkey
-- locks: the worker's own row
-- run by: every beat
update pgqueue.workers
set lease_until = clock.now + %(lease)s::interval, heard_at = clock.now, blocked_since = clock.now - %(blocked_for)s::interval,
    blocked_job = %(blocked_job)s::bigint, blocked_task = %(blocked_task)s::text, blocked_where = %(blocked_where)s::text,
    not_returned = %(not_returned)s::integer, concurrency = coalesce(%(maximum)s::integer, concurrency),
    minimum = %(minimum)s::integer, slots = %(slots)s::integer, quiet = %(quiet)s::boolean,
    memory = %(memory)s::bigint, running = %(running)s::bigint[], taken = %(taken)s::integer,
    overrunning = %(overrunning)s::bigint[], supervised = %(supervised)s::boolean, answer = %(answer)s::text,
    looked_at = clock.now - %(looked)s::interval, look_within = %(look_within)s::float8,
    cannot_listen_since = clock.now - %(not_listening)s::interval
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
where id = %(worker)s::uuid
returning ask_minimum, ask_maximum, ask_quiet, ask_end, asked_at, asked_by,
          array(select job_id from pgqueue.stacks where worker_id = id and answered_at is null)
