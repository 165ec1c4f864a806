-- insight/series_minutes: move what workers wrote before an instant into minutes, a row for each pair and one for the whole.
-- index: none: reads what workers wrote in the last minutes
-- locks: the moved rows
-- run by: worker upkeep
-- why: pairs of queue and task beyond the bound are one row. What is of an hour or a day that is made already goes there, too
with moved as (
    delete from pgqueue.series_written where at < %(before)s::timestamptz returning *
),
bounded as (
    select *, dense_rank() over (partition by at order by queue, task) > %(pairs)s::integer as beyond from moved
),
pair as (
    select at, case when not beyond then queue end as queue, case when not beyond then task end as task,
           sum(enqueued)::bigint as enqueued, sum(started)::bigint as started, sum(succeeded)::bigint as succeeded,
           sum(failed)::bigint as failed, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
           sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired, sum(reclaimed)::bigint as reclaimed,
           (pgqueue.merged(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts))).*,
           (pgqueue.merged(pgqueue.joined(run_bins), pgqueue.joined(run_counts))).*
    from bounded group by 1, 2, 3
),
named (at, queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired, reclaimed,
       wait_bins, wait_counts, run_bins, run_counts) as (select * from pair),
minute as (
    select *, false as whole from named
    union all
    select at, null, null, sum(enqueued)::bigint, sum(started)::bigint, sum(succeeded)::bigint, sum(failed)::bigint,
           sum(retried)::bigint, sum(dead)::bigint, sum(cancelled)::bigint, sum(expired)::bigint, sum(reclaimed)::bigint,
           (pgqueue.merged(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts))).*,
           (pgqueue.merged(pgqueue.joined(run_bins), pgqueue.joined(run_counts))).*, true
    from named group by at
),
late as (
    insert into pgqueue.series_hours
    select date_trunc('hour', at, 'UTC'), queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired,
           reclaimed, wait_bins, wait_counts, run_bins, run_counts, whole
    from minute where at < %(hours_until)s::timestamptz
),
later as (
    insert into pgqueue.series_days
    select date_trunc('day', at, 'UTC'), queue, task, enqueued, started, succeeded, failed, retried, dead, cancelled, expired,
           reclaimed, wait_bins, wait_counts, run_bins, run_counts, whole
    from minute where at < %(days_until)s::timestamptz
)
insert into pgqueue.series_minutes select * from minute
