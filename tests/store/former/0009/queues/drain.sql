-- queues/drain: refuse enqueues to queues, whose jobs go on; those that were not drained before.
-- index: queues_pkey
-- locks: those queues' rows, in the order of their names
-- run by: QueueControl.drain
insert into pgqueue.queues as known (name, drained_at, drained_by, drained_why)
select name, coalesce(%(now)s::timestamptz, now()), %(by)s::text, %(why)s::text
from unnest(%(queues)s::text[]) as name order by name
on conflict (name) do update
set drained_at = excluded.drained_at, drained_by = excluded.drained_by, drained_why = excluded.drained_why
where known.drained_at is null
returning name
