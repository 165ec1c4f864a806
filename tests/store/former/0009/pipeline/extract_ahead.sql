-- pipeline/extract_ahead: whether rows have the numbers of transactions that this server has not reached.
-- index: none: job_history_ended_in and dead_jobs_ended_in, when the number is known to the planner
-- locks: none
-- run by: spark.read, spark.readStream
select exists (select from pgqueue.job_history where ended_in >= %(next)s::bigint)
    or exists (select from pgqueue.dead_jobs where ended_in >= %(next)s::bigint)
