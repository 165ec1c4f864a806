-- pipeline/extract_news: the transactions of a range in which jobs ended, in order, and how many jobs ended in each.
-- index: none: job_history_ended_in and dead_jobs_ended_in, when the range is known to the planner
-- locks: none
-- run by: spark.readStream
select ended_in, count(*)
from (select ended_in from pgqueue.job_history where %(history)s::boolean
      union all
      select ended_in from pgqueue.dead_jobs where %(dead)s::boolean) as ended
where ended_in >= %(start)s::bigint and ended_in < %(end)s::bigint
group by ended_in
order by ended_in
limit %(limit)s::integer
