-- retention/keep_for: store what is kept of ended and dead jobs, where a value is given; what holds now, and whether it is new.
-- index: none (one row)
-- locks: the one row
-- run by: worker start, QueueControl.keep
-- rights: operator
select extract(epoch from history_now)::float8, extract(epoch from dead_now)::float8, history_args_now, changed
from pgqueue.keep_for(%(history)s::interval, %(dead)s::interval, %(history_args)s::integer, %(said_by)s::text, %(why)s::text)
