-- pipeline/extract_oldest: the day of the oldest job in the history that ended in a transaction or a later one; null if there is none.
-- index: none: job_history_ended_in, when the number is known to the planner
-- locks: none
-- run by: spark.readStream
select (min(finished_at) at time zone 'UTC')::date
from pgqueue.job_history
where ended_in >= %(start)s::bigint
