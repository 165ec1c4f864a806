-- workers/list: every worker that is known: what it serves, what it does, what it was asked to do.
-- index: none: a row for each worker
-- locks: none
-- run by: PgQueue.workers
-- rights: monitor
select worker.id, host, pid, version, queues, chosen_tasks, started_at, lease_until > clock.now, concurrency, minimum, slots,
       coalesce(quiet, false), coalesce(supervised, false), answer, blocked_since,
       case when lease_until > clock.now and extract(epoch from clock.now - pgqueue.as_datetime(looked_at)) > look_within
            then extract(epoch from clock.now - pgqueue.as_datetime(looked_at))::float8 end, coalesce(not_returned, 0),
       ask_minimum, ask_maximum, ask_quiet, ask_end, asked_at, asked_by
from pgqueue.workers as worker, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
order by host, pid, started_at, worker.id
