-- keep_for: store for how long ended and dead jobs are kept, where a value is given; what holds now, and what held before.
-- index: none (one row)
-- locks: the one row
-- run by: worker start
select history_now::text, dead_now::text, history_before::text, dead_before::text
from pgqueue.keep_for(%(history)s::interval, %(dead)s::interval, %(said_by)s::text)
