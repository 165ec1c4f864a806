-- queues/close: refuse enqueues to queues, whose jobs go on; those that were not closed before.
-- index: queues_pkey
-- locks: those queues' rows, in the order of their names
-- run by: QueueControl.close
insert into pgqueue.queues as known (name, closed_at, closed_by, closed_why)
select name, coalesce(%(now)s::timestamptz, now()), %(by)s::text, %(why)s::text
from unnest(%(queues)s::text[]) as name order by name
on conflict (name) do update
set closed_at = excluded.closed_at, closed_by = excluded.closed_by, closed_why = excluded.closed_why
where known.closed_at is null
returning name
