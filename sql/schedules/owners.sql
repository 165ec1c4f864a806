-- schedules/owners: which module declares each of these schedules, and its arguments; null: none, it was made at run time.
-- index: schedules_pkey
-- locks: none
-- run by: Schedules.add, Schedules.put, worker start
select name, module, args::text from pgqueue.schedules where name = any(%(names)s::text[])
