-- queues/pause: stop queues from being claimed from; those that were not paused before.
-- index: queues_pkey
-- locks: those queues' rows, in the order of their names
-- run by: QueueControl.pause
insert into pgqueue.queues as known (name, paused_at, paused_by, paused_why)
select name, coalesce(%(now)s::timestamptz, now()), %(by)s::text, %(why)s::text
from unnest(%(queues)s::text[]) as name order by name
on conflict (name) do update
set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why
where known.paused_at is null
returning name
