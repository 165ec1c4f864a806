-- insight/series_whole: what happened in each step, in all queues and tasks together.
-- index: series_days_at, series_hours_at, series_minutes_at
-- locks: none
-- run by: Insight.series
-- rights: monitor
-- why: days and hours stand for their minutes where that is fine enough; what has not been moved is in series_written
with found as (
    select at, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_days where whole and at >= %(days_since)s::timestamptz and at < %(days_until)s::timestamptz
    union all
    select at, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_hours where whole and at >= %(since)s::timestamptz and at < %(days_since)s::timestamptz
    union all
    select at, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_hours where whole and at >= %(days_until)s::timestamptz and at < %(hours_until)s::timestamptz
    union all
    select at, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_minutes where whole and at >= %(hours_until)s::timestamptz and at < %(until)s::timestamptz
    union all
    select at, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
           wait_bins, wait_counts, run_bins, run_counts
    from pgqueue.series_written where at >= %(since)s::timestamptz and at < %(until)s::timestamptz
)
select date_bin(%(step)s::interval, at, %(since)s::timestamptz), null::text, sum(enqueued)::bigint, sum(started)::bigint,
       sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint, sum(dead)::bigint, sum(cancelled)::bigint,
       sum(expired)::bigint, sum(reclaimed)::bigint,
       pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), pgqueue.joined(run_bins), pgqueue.joined(run_counts)
from found group by 1
