-- retention/keep_for: store what is kept of ended and dead jobs, where a value is given; what holds now, and what held before.
-- index: none (one row)
-- locks: the one row
-- run by: worker start
-- rights: worker
select history_now::text, dead_now::text, history_args_now, history_before::text, dead_before::text, history_args_before
from pgqueue.keep_for(%(history)s::interval, %(dead)s::interval, %(history_args)s::integer, %(said_by)s::text)
