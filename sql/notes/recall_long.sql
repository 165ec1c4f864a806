-- notes/recall_long: a value that was too long for recall.
-- index: notes_pkey
-- locks: none
-- run by: Context.step, Context.last_checkpoint
-- rights: reader
select value::text
from pgqueue.notes
where job_id = %(id)s::bigint and kind = %(kind)s::text and name = %(name)s::text
