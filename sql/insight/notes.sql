-- insight/notes: what attempts of a job have noted, the first at the front; not the values, which may be long or secret.
-- index: notes_pkey
-- locks: none
-- run by: Insight.story
-- rights: reader
select kind, name, at, pg_catalog.pg_column_size(value)
from pgqueue.notes
where job_id = %(id)s::bigint and kind not in ('progress', 'log')
order by at, name
limit %(limit)s::integer
