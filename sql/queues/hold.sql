-- queues/hold: the settings of a queue, which gets a row if it has none; no one else changes them before the transaction ends.
-- index: queues_pkey
-- locks: that queue's row
-- run by: QueueControl.declare, QueueControl.set
insert into pgqueue.queues as known (name) values (%(queue)s::text)
on conflict (name) do update set name = excluded.name
returning priority, max_attempts, extract(epoch from timeout)::float8, extract(epoch from keep_history)::float8, extract(epoch from keep_dead)::float8,
          backlog, when_full, extract(epoch from ageing)::float8, ageing_to
