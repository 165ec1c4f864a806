-- alerts/owner: which module declares an alert.
-- index: alerts_pkey
-- locks: none
-- run by: Alerts.apply, worker start
select module from pgqueue.alerts where name = %(name)s::text
