-- notes/log: note the last lines that attempts logged, in place of those that were noted of the same attempts.
-- index: notes_pkey
-- locks: the notes
-- run by: worker upkeep
-- why: the jobs are not read: most attempts have ended when their last lines are written. What is noted of a job that is gone is dropped
insert into pgqueue.notes (job_id, kind, name, value, at)
select job_id, 'log', name, value::json, coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
from unnest(%(ids)s::bigint[], %(names)s::text[], %(values)s::text[]) as log (job_id, name, value)
on conflict (job_id, kind, name) do update set value = excluded.value, at = excluded.at
