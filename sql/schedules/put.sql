-- schedules/put: add a schedule, or change the one of its name that has the same owner; what was done.
-- index: schedules_pkey
-- locks: the row
-- run by: Schedules.add, Schedules.put, worker start
-- why: a row that is as it should be is not written, so a worker that starts writes nothing. No row is returned then, and
--      none for a schedule of another owner: show tells the two apart. Where neither the time of the decision nor the next tick
--      changed, schedule_changed would take another rule for one that was written by hand
insert into pgqueue.schedules as known (name, module, created_at, task, queue, args, priority, max_attempts, unique_key,
    unique_until_started, meta, cron, every, at, timezone, anchor, start_at, end_at, gap, repeat, jitter, missed,
    missed_limit, tolerance, overlap, expires_in, settled, next_at)
values (%(name)s::text, %(module)s::text, coalesce(%(now)s::timestamptz, now()), %(task)s::text, %(queue)s::text,
    %(args)s::text::json, %(priority)s::smallint, %(max_attempts)s::smallint, %(unique_key)s::text,
    %(unique_until_started)s::boolean, %(meta)s::text::jsonb, %(cron)s::text, %(every)s::interval, %(at)s::timestamptz,
    %(timezone)s::text, %(anchor)s::timestamptz, %(start_at)s::timestamptz, %(end_at)s::timestamptz, %(gap)s::text,
    %(repeat)s::text, %(jitter)s::interval, %(missed)s::text, %(missed_limit)s::integer, %(tolerance)s::interval,
    %(overlap)s::text, %(expires_in)s::interval, coalesce(%(now)s::timestamptz, now()), %(next_at)s::timestamptz)
on conflict (name) do update
set task = excluded.task, queue = excluded.queue, args = excluded.args, priority = excluded.priority,
    max_attempts = excluded.max_attempts, unique_key = excluded.unique_key,
    unique_until_started = excluded.unique_until_started, meta = excluded.meta, cron = excluded.cron,
    every = excluded.every, at = excluded.at, timezone = excluded.timezone, anchor = excluded.anchor,
    start_at = excluded.start_at, end_at = excluded.end_at, gap = excluded.gap, repeat = excluded.repeat,
    jitter = excluded.jitter, missed = excluded.missed, missed_limit = excluded.missed_limit, tolerance = excluded.tolerance,
    overlap = excluded.overlap, expires_in = excluded.expires_in,
    settled = case when (known.cron, known.every, known.at, known.timezone, known.anchor, known.start_at, known.end_at,
                         known.gap, known.repeat)
                        is distinct from (excluded.cron, excluded.every, excluded.at, excluded.timezone, excluded.anchor,
                                          excluded.start_at, excluded.end_at, excluded.gap, excluded.repeat)
                   then excluded.settled
                        + case when excluded.settled = known.settled then interval '1 microsecond' else interval '0' end
                   else known.settled end,
    next_at = case when (known.cron, known.every, known.at, known.timezone, known.anchor, known.start_at, known.end_at,
                         known.gap, known.repeat)
                        is distinct from (excluded.cron, excluded.every, excluded.at, excluded.timezone, excluded.anchor,
                                          excluded.start_at, excluded.end_at, excluded.gap, excluded.repeat)
                   then excluded.next_at else known.next_at end
where %(replace)s::boolean and known.module is not distinct from excluded.module
  and (known.task, known.queue, known.args::text, known.priority, known.max_attempts, known.unique_key,
       known.unique_until_started, known.meta, known.cron, known.every, known.at, known.timezone, known.anchor,
       known.start_at, known.end_at, known.gap, known.repeat, known.jitter, known.missed, known.missed_limit, known.tolerance,
       known.overlap, known.expires_in)
      is distinct from (excluded.task, excluded.queue, excluded.args::text, excluded.priority, excluded.max_attempts,
       excluded.unique_key, excluded.unique_until_started, excluded.meta, excluded.cron, excluded.every, excluded.at,
       excluded.timezone, excluded.anchor, excluded.start_at, excluded.end_at, excluded.gap, excluded.repeat,
       excluded.jitter, excluded.missed, excluded.missed_limit, excluded.tolerance, excluded.overlap,
       excluded.expires_in)
returning xmax = 0
