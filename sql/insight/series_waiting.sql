-- insight/series_waiting: jobs that no worker has claimed yet, by the step in which they were enqueued, and by queue or task.
-- index: none: reads the given share of the table, in percent
-- locks: none
-- run by: Insight.series, Insight.totals
-- rights: monitor
-- why: workers count a job as enqueued when they claim it for the first time
select date_bin(%(step)s::interval, created_at, %(since)s::timestamptz),
       case %(by)s::text when 'queue' then queue when 'task' then task end, count(*)
from pgqueue.jobs tablesample system (%(percent)s::real)
where attempts = 0 and created_at >= %(since)s::timestamptz and created_at < %(until)s::timestamptz
  and (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
group by 1, 2
