-- found: count the made-up rows of each day, and return which days are in a lake.
-- index: job_history_id, dead_jobs_pkey
-- locks: none
-- run by: pgqueue pipeline generate
-- why: a day's rows are made in one transaction and numbered without a gap, so the highest number is the count; a day that
--      is in the lake may have been dropped from the database
select wanted.day,
       coalesce(greatest(
           (select max(id) from pgqueue.job_history
            where id > wanted.first_id and id <= wanted.first_id + %(ids)s::bigint
              and finished_at >= wanted.day::timestamp at time zone 'UTC'
              and finished_at < (wanted.day + 1)::timestamp at time zone 'UTC'),
           (select max(id) from pgqueue.dead_jobs
            where id > wanted.first_id and id <= wanted.first_id + %(ids)s::bigint)
       ) - wanted.first_id, 0),
       wanted.day in (select day from pgqueue.lake_days)
from unnest(%(days)s::date[], %(first_ids)s::bigint[]) as wanted (day, first_id)
order by wanted.day
