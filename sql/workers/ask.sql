-- workers/ask: ask live workers to do something; what is null stays as it was asked before. A trigger tells them.
-- index: workers_pkey
-- locks: the workers' rows, in the order of their ids; the database-wide NOTIFY lock, at commit
-- run by: PgQueue.workers
with asked as (
    select id from pgqueue.workers
    where id = any(%(workers)s::uuid[]) and lease_until > coalesce(%(now)s::timestamptz, now()) and minimum is not null
    order by id for update
)
update pgqueue.workers as worker
set ask_minimum = coalesce(%(minimum)s::integer, worker.ask_minimum), ask_maximum = coalesce(%(maximum)s::integer, worker.ask_maximum),
    ask_quiet = coalesce(%(quiet)s::boolean, worker.ask_quiet), ask_end = coalesce(%(end)s::text, worker.ask_end),
    asked_at = coalesce(%(now)s::timestamptz, clock_timestamp()), asked_by = %(by)s::text
from asked where worker.id = asked.id
returning worker.id
