-- insight/series_pairs: what happened in each step, of one queue or task, or of each.
-- index: series_days_at, series_hours_at, series_minutes_at
-- locks: none
-- run by: Insight.series, Insight.totals, Insight.compare
-- rights: monitor
-- why: days and hours stand for their minutes where that is fine enough; what has not been moved is in series_written
with found as (
    select at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_days where not whole and at >= %(days_since)s::timestamptz and at < %(days_until)s::timestamptz
    union all
    select at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_hours where not whole and at >= %(since)s::timestamptz and at < %(days_since)s::timestamptz
    union all
    select at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_hours where not whole and at >= %(days_until)s::timestamptz and at < %(hours_until)s::timestamptz
    union all
    select at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_minutes where not whole and at >= %(hours_until)s::timestamptz and at < %(until)s::timestamptz
    union all
    select at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_written where at >= %(since)s::timestamptz and at < %(until)s::timestamptz
)
select date_bin(%(step)s::interval, at, %(since)s::timestamptz), case %(by)s::text when 'queue' then queue when 'task' then task end, sum(enqueued)::bigint, sum(started)::bigint,
       sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(dead)::bigint, sum(cancelled)::bigint,
       sum(expired)::bigint, sum(reclaimed)::bigint,
       pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), pgqueue.joined(run_bins), pgqueue.joined(run_counts)
from found where (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
group by 1, 2
