-- pipeline/lake_pass_key: remove the unique key of a job that is about to end, so that the next step can use it.
-- index: jobs_pkey
-- locks: that job's row
-- run by: pipeline run
update pgqueue.jobs set unique_key = null where id = %(id)s::bigint
