-- alerts/lock: lock an alert that is to be looked at now, and read what decides on it; no row: another worker looks, or has looked.
-- index: alerts_pkey
-- locks: that row, if it is free
-- run by: worker upkeep, drain
-- why: a statement of this transaction that takes longer than the timeout is cancelled by the server
select clock.now, rule, after, clear_for, repeat_every, resolved, task, argument, queue, priority, max_attempts, expires_in,
       pgqueue.as_datetime(held_at), pgqueue.as_datetime(firing_at), pgqueue.as_datetime(clear_at), pgqueue.as_datetime(told_at),
       told, silenced_until > clock.now, error, pg_catalog.set_config('statement_timeout', %(timeout)s::text, true)
from pgqueue.alerts, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
where name = %(name)s::text and (next_at <= clock.now or looked_at > clock.now + interval '1 minute')
for no key update of alerts skip locked
