-- pipeline/extract_cuts: divide a range of transactions into stretches of a given number of rows: the first transaction of each, and its rows.
-- index: none: job_history_ended_in and dead_jobs_ended_in, when the range is known to the planner
-- locks: none
-- run by: spark.readStream
select min(ended_in), sum(jobs)::bigint
from (select ended_in, count(*) as jobs,
             ((sum(count(*)) over (order by ended_in)) - count(*))::bigint / %(rows)s::bigint as stretch
      from (select ended_in from pgqueue.job_history where %(history)s::boolean
            union all
            select ended_in from pgqueue.dead_jobs where %(dead)s::boolean) as ended
      where ended_in >= %(start)s::bigint and ended_in < %(end)s::bigint
      group by ended_in) as ended
group by stretch
order by 1
