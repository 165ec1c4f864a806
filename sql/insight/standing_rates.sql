-- insight/standing_rates: how many jobs of each queue, on the last pages of the history, ended since an instant; and when the first job there ended.
-- index: none: reads the last pages of today's part of the history
-- locks: none
-- run by: Insight.queues
-- rights: monitor
-- why: rows of the history are added at the end and never changed, so the last pages hold the jobs that ended last
with ended as (
    select queue, finished_at from pgqueue.job_history
    where ctid >= %(from_page)s::tid and finished_at >= %(day)s::timestamptz
)
select queue, count(*) filter (where finished_at >= %(since)s::timestamptz), (select min(finished_at) from ended)
from ended group by queue
