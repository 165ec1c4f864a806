-- pause: stop a queue from being claimed from.
-- index: queues_pkey
-- locks: that queue's row
-- run by: PgQueue.pause
insert into pgqueue.queues (name, paused_at)
values (%(queue)s::text, coalesce(%(now)s::timestamptz, now()))
on conflict (name) do update set paused_at = coalesce(queues.paused_at, excluded.paused_at)
