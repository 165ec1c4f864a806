-- insight/series_hours: make hours of the minutes from one instant to another.
-- index: series_minutes_at
-- locks: the row of series_state, which the caller has locked
-- run by: worker upkeep
with hour as (
    select date_trunc('hour', at, 'UTC') as hour, queue, task, whole,
           sum(enqueued)::bigint as enqueued, sum(started)::bigint as started, sum(succeeded)::bigint as succeeded,
           sum(failed)::bigint as failed, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
           sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired, sum(reclaimed)::bigint as reclaimed,
           pgqueue.joined(wait_bins) as wait_bins, pgqueue.joined(wait_counts) as wait_counts,
           pgqueue.joined(run_bins) as run_bins, pgqueue.joined(run_counts) as run_counts,
           dense_rank() over (partition by date_trunc('hour', at, 'UTC'), whole order by queue, task) as place
    from pgqueue.series_minutes
    where whole = any('{t,f}') and at >= %(since)s::timestamptz and at < %(until)s::timestamptz
    group by 1, 2, 3, 4
),
pair as (
    select hour, case when place <= %(pairs)s::integer then queue end as queue,
           case when place <= %(pairs)s::integer then task end as task,
           sum(enqueued)::bigint, sum(started)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(retried)::bigint,
           sum(dead)::bigint, sum(cancelled)::bigint, sum(expired)::bigint, sum(reclaimed)::bigint,
           (pgqueue.merged(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts))).*,
           (pgqueue.merged(pgqueue.joined(run_bins), pgqueue.joined(run_counts))).*, whole
    from hour group by 1, 2, 3, whole
),
made as (
    insert into pgqueue.series_hours select * from pair
)
update pgqueue.series_state set hours_until = %(until)s::timestamptz
