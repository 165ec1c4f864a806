-- pipeline/lake_dead: the lowest and the highest transaction of each day's dead jobs.
-- index: none
-- locks: none
-- run by: pipeline export, verify
-- why: dead jobs have no partitions and no index by day. With these bounds dead_jobs_ended_in finds those of a day, so the
--      table is read once for all days, and not again for each
select (died_at at time zone 'UTC')::date as day, min(ended_in), max(ended_in)
from pgqueue.dead_jobs
group by day
