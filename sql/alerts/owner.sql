-- alerts/owner: which module declares an alert.
-- index: alerts_pkey
-- locks: none
-- run by: Alerts.apply, worker start
-- rights: monitor
select module from pgqueue.alerts where name = %(name)s::text
