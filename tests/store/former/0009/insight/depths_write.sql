-- insight/depths_write: note how deep queues are in a minute, and make the hours that are over.
-- index: series_depths_at, series_depth_hours_at
-- locks: the minute's row of all queues, if another worker adds it now
-- run by: worker upkeep
-- why: the row of all queues is the first of its minute: one worker adds it, and with it the others. Hours before the minute's,
--      and after the last that was made, have no more rows to come. Hours of the future come from a clock that was set back
with given as materialized (
    select * from pg_catalog.json_populate_recordset(null::pgqueue.series_depths, %(rows)s::json)
),
whole as (
    insert into pgqueue.series_depths select * from given where queue is null
    on conflict do nothing
    returning at
),
highest as (
    select date_trunc('hour', depth.at, 'UTC') as hour, queue, max(blocked) as blocked, max(scheduled) as scheduled,
           max(ready) as ready, max(running) as running, max(dead) as dead, max(oldest_ready) as oldest_ready,
           bool_or(estimated) as estimated,
           row_number() over (partition by date_trunc('hour', depth.at, 'UTC') order by queue is not null,
               max(blocked) + max(scheduled) + max(ready) + max(running) + max(dead) desc, queue) as place
    from whole cross join lateral (
        select * from pgqueue.series_depths
        where at >= coalesce((select max(at) + interval '1 hour' from pgqueue.series_depth_hours
                              where at < date_trunc('hour', whole.at, 'UTC')), '-infinity')
          and at < date_trunc('hour', whole.at, 'UTC')
    ) as depth
    group by 1, 2
),
hours as (
    insert into pgqueue.series_depth_hours
    select hour, queue, blocked, scheduled, ready, running, dead, oldest_ready, estimated
    from highest where place <= %(queues)s::integer + 1
    on conflict do nothing
)
insert into pgqueue.series_depths select given.* from given cross join whole where given.queue is not null
