-- insight/run_ended: of the jobs of a run: how many succeeded, were cancelled, and ended in the last minute, and when the last one ended.
-- index: job_history_id
-- locks: none
-- run by: Insight.run
-- rights: monitor
-- why: the ids are read once. A cast where rows are compared is made for each row, and a stream's run has a range for each batch: with
--      20,000 ranges and 500,000 rows between them the answer takes 0.1 s, and took hours
with of_run as materialized (select %(ids)s::text::int8multirange as ids)
select count(*) filter (where outcome = 'succeeded'), count(*) filter (where outcome = 'cancelled'),
       count(*) filter (where finished_at > clock_timestamp() - interval '1 minute'), max(finished_at)
from of_run, pgqueue.job_history
where id >= lower(ids) and id < upper(ids) and id <@ ids
