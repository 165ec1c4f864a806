-- pipeline/extract_ended: ended jobs from the history and from the dead table, in one shape; source names the table.
-- index: none: as extract_history and extract_dead
-- locks: none
-- run by: spark.read and spark.readStream, table ended
-- why: the union converts no column, so a query for one source is planned as a query of its table
select {history as ended}, (finished_at at time zone 'UTC')::date as day, 'history'::text as source, tableoid as part, ctid as place
from pgqueue.job_history
union all
select {dead as ended}, (died_at at time zone 'UTC')::date, 'dead'::text, tableoid, ctid
from pgqueue.dead_jobs
