-- insight/depths: the highest numbers of jobs in each step, of one queue or of all together.
-- index: series_depths_queue, series_depth_hours_queue
-- locks: none
-- run by: Insight.depths
-- rights: monitor
-- why: a minute in which a queue had no jobs has the row of all queues alone
with found as (
    select * from pgqueue.series_depth_hours
    where (queue is null or queue = %(queue)s::text) and at >= %(since)s::timestamptz and at < %(hours_until)s::timestamptz
    union all
    select * from pgqueue.series_depths
    where (queue is null or queue = %(queue)s::text) and at >= %(hours_until)s::timestamptz and at < %(until)s::timestamptz
)
select date_bin(%(step)s::interval, at, %(since)s::timestamptz), coalesce(max(blocked) filter (where asked), 0),
       coalesce(max(scheduled) filter (where asked), 0), coalesce(max(ready) filter (where asked), 0),
       coalesce(max(running) filter (where asked), 0), coalesce(max(dead) filter (where asked), 0),
       max(oldest_ready) filter (where asked), bool_or(estimated)
from found cross join lateral (select queue is not distinct from %(queue)s::text as asked) as which
group by 1
