-- notes/recall: the steps and the checkpoint that attempts of a job have noted; of a long value only that it exists.
-- index: notes_pkey
-- locks: none
-- run by: Context.step, Context.checkpoint
-- rights: reader
select kind, name, case when pg_catalog.pg_column_size(value) < 2000 then value::text end
from pgqueue.notes
where job_id = %(id)s::bigint and kind in ('step', 'checkpoint')
