-- pipeline/extract_first: the first transaction in which a job ended on a day or later; null if there is none.
-- index: none: the partitions of these days, and all dead jobs
-- locks: none
-- run by: spark.readStream, option startingFrom
select min(ended_in)
from (select finished_at as ended_at, ended_in from pgqueue.job_history where %(history)s::boolean
      union all
      select died_at, ended_in from pgqueue.dead_jobs where %(dead)s::boolean) as ended
where ended_at >= (%(day)s::date::timestamp at time zone 'UTC')
