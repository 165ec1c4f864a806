-- insight/run_ended: of the jobs of a run: how many succeeded, were cancelled, and ended in the last minute, and when the last one ended.
-- index: job_history_id
-- locks: none
-- run by: Insight.run
-- rights: monitor
select count(*) filter (where outcome = 'succeeded'), count(*) filter (where outcome = 'cancelled'),
       count(*) filter (where finished_at > clock_timestamp() - interval '1 minute'), max(finished_at)
from pgqueue.job_history
where id >= lower(%(ids)s::text::int8multirange) and id < upper(%(ids)s::text::int8multirange) and id <@ %(ids)s::text::int8multirange
