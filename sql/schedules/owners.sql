-- schedules/owners: which module declares each of these schedules; null: none, it was made at run time.
-- index: schedules_pkey
-- locks: none
-- run by: Schedules.add, Schedules.put, worker start
select name, module from pgqueue.schedules where name = any(%(names)s::text[])
