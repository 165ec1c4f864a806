-- pipeline/extract_jobs: jobs that have not ended, as Spark sees them; part and place give a row's table and page.
-- index: none: all of them
-- locks: none
-- run by: spark.read, table jobs
select {jobs as read}, tableoid as part, ctid as place
from pgqueue.jobs
