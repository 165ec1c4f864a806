-- alerts/remove: delete alerts, by name or those that these modules no longer declare; the names.
-- index: none: a row for each alert
-- locks: those rows
-- run by: Alerts.remove, Alerts.apply, worker start
delete from pgqueue.alerts
where name = any(%(names)s::text[]) or (module = any(%(modules)s::text[]) and name <> all(%(declared)s::text[]))
returning name
