-- pipeline/extract_dead: dead jobs, as Spark sees them; part and place give a row's table and page.
-- index: none: reads all of them, or those of a range of transactions, as the select around it asks
-- locks: none
-- run by: spark.read and spark.readStream, table dead
select {dead as read}, (died_at at time zone 'UTC')::date as day, tableoid as part, ctid as place
from pgqueue.dead_jobs
