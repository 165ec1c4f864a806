-- insight/series_write: add what a worker measured: a row for each minute, queue and task.
-- index: none: adds rows
-- locks: none
-- run by: worker upkeep
insert into pgqueue.series_written
select * from pg_catalog.json_populate_recordset(null::pgqueue.series_written, %(rows)s::json)
