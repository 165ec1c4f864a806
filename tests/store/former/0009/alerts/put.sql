-- alerts/put: add an alert, or change the one of its name that the same module declares; what was done.
-- index: alerts_pkey
-- locks: the row
-- run by: Alerts.apply, worker start
-- why: a row that is as it should be is not written, so a worker that starts writes nothing. How the alert stands stays: one
--      that is firing is not told again because its code has changed
insert into pgqueue.alerts as known (name, module, created_at, rule, after, clear_for, repeat_every, resolved, task, argument,
    queue, priority, max_attempts, expires_in, next_at)
values (%(name)s::text, %(module)s::text, coalesce(%(now)s::timestamptz, now()), %(rule)s::text, %(after)s::interval,
    %(clear_for)s::interval, %(repeat_every)s::interval, %(resolved)s::boolean, %(task)s::text, %(argument)s::text,
    %(queue)s::text, %(priority)s::smallint, %(max_attempts)s::smallint, %(expires_in)s::interval,
    coalesce(%(now)s::timestamptz, now()))
on conflict (name) do update
set rule = excluded.rule, after = excluded.after, clear_for = excluded.clear_for, repeat_every = excluded.repeat_every,
    resolved = excluded.resolved, task = excluded.task, argument = excluded.argument, queue = excluded.queue,
    priority = excluded.priority, max_attempts = excluded.max_attempts, expires_in = excluded.expires_in,
    next_at = excluded.next_at
where known.module = excluded.module
  and (known.rule, known.after, known.clear_for, known.repeat_every, known.resolved, known.task, known.argument, known.queue,
       known.priority, known.max_attempts, known.expires_in)
      is distinct from (excluded.rule, excluded.after, excluded.clear_for, excluded.repeat_every, excluded.resolved,
       excluded.task, excluded.argument, excluded.queue, excluded.priority, excluded.max_attempts, excluded.expires_in)
returning xmax = 0
