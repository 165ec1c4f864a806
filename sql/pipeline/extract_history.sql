-- pipeline/extract_history: jobs that succeeded or were cancelled, as Spark sees them; part and place give a row's table and page.
-- index: none: reads the day's partition, by its pages, as the select around it asks
-- locks: none
-- run by: spark.read and spark.readStream, table history
select {history as read}, (finished_at at time zone 'UTC')::date as day, tableoid as part, ctid as place
from pgqueue.job_history
