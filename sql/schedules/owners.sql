-- schedules/owners: which module declares each of these schedules (null: none), its arguments, its unique key, and how long its jobs wait.
-- index: schedules_pkey
-- locks: none
-- run by: Schedules.add, Schedules.put, worker start
-- rights: reader
select name, module, args::text, unique_key, unique_until_started, expires_in
from pgqueue.schedules where name = any(%(names)s::text[])
