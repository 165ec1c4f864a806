-- alerts/silence: have the task of an alert told nothing for a time; null: have it told again. No row: there is none of this name.
-- index: alerts_pkey
-- locks: that row
-- run by: Alerts.silence, Alerts.unsilence
update pgqueue.alerts
set silenced_until = coalesce(%(now)s::timestamptz, now()) + %(length)s::interval, silenced_by = %(by)s::text
where name = %(name)s::text
returning pgqueue.as_datetime(silenced_until)
