-- queues/set: store the settings of a queue.
-- index: queues_pkey
-- locks: that queue's row
-- run by: QueueControl.declare, QueueControl.set
update pgqueue.queues
set priority = %(priority)s::smallint, max_attempts = %(max_attempts)s::smallint, timeout = %(timeout)s::interval,
    keep_history = %(keep_history)s::interval,
    history_cut = case when keep_history = %(keep_history)s::interval then history_cut end, keep_dead = %(keep_dead)s::interval,
    backlog = %(backlog)s::integer, when_full = %(when_full)s::text,
    ageing = %(ageing)s::interval, ageing_to = %(ageing_to)s::smallint,
    set_at = coalesce(%(now)s::timestamptz, now()), set_by = %(by)s::text
where name = %(queue)s::text
