-- schedules/remove: delete schedules, by name or those that their modules no longer declare; the names.
-- index: schedules_pkey, schedules_module
-- locks: those rows
-- run by: Schedules.remove, worker start
delete from pgqueue.schedules
where name = any(array(
    select name from pgqueue.schedules where name = any(%(names)s::text[])
    union all
    select name from pgqueue.schedules where module = any(%(modules)s::text[]) and name <> all(%(declared)s::text[])
))
returning name
