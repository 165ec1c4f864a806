-- alerts/list: every alert by name, and how it stands.
-- index: none: a row for each alert
-- locks: none
-- run by: Alerts.list
-- rights: monitor
select name, module, rule, task, queue, summary, value, threshold, pgqueue.as_datetime(looked_at), job_id,
       case when silenced_until > clock.now then pgqueue.as_datetime(silenced_until) end,
       case when silenced_until > clock.now then silenced_by end,
       pgqueue.as_datetime(failed_at), error, pgqueue.as_datetime(held_at), pgqueue.as_datetime(firing_at),
       pgqueue.as_datetime(clear_at), pgqueue.as_datetime(told_at), told, after, clear_for, repeat_every, resolved, argument
from pgqueue.alerts, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
order by name
