-- insight/ended_lately: how many jobs ended in each step, of a queue or task or of all, and how long they waited and ran; without a step: when the first job that was read ended.
-- index: none: reads the last pages of a day's part of the history
-- locks: none
-- run by: Insight.ended
-- rights: monitor
-- why: rows of the history are added at the end and never changed, so the last pages hold the jobs that ended last
with ended as materialized (
    select queue, task, outcome, finished_at, extract(epoch from started_at - run_at)::float8 as wait,
           extract(epoch from finished_at - started_at)::float8 as run
    from pgqueue.job_history
    where ctid >= %(from_page)s::tid and finished_at >= %(day)s::timestamptz and finished_at < %(day)s::timestamptz + interval '1 day'
)
select date_bin(%(step)s::interval, finished_at, %(since)s::timestamptz), count(*) filter (where outcome = 'succeeded'),
       count(*) filter (where outcome <> 'succeeded'), count(wait), count(run),
       percentile_disc(array[0.5, 0.95, 0.99]) within group (order by greatest(wait, 0)),
       percentile_disc(array[0.5, 0.95, 0.99]) within group (order by greatest(run, 0))
from ended
where finished_at >= %(since)s::timestamptz and finished_at < %(until)s::timestamptz
  and (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
group by 1
union all
select null, 0, 0, 0, 0, null, array[extract(epoch from pgqueue.as_datetime(min(finished_at)))::float8] from ended
