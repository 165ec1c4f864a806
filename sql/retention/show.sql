-- retention/show: what is kept, for how long or until when, how much there is, and when what is removed next.
-- index: series_minutes_at, series_hours_at, series_days_at, series_depths_at, series_depth_hours_at, schedule_ticks_fired_at, flows_ended_at, dead_jobs_ended_in, audit_pkey
-- locks: none
-- run by: Insight.retention
-- rights: monitor
-- why: rows are the estimates that insight/tables shows; of the dead jobs the one that ended first counts as the oldest
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
said as (
    select extract(epoch from history)::float8 as history, extract(epoch from dead)::float8 as dead, set_at, set_by from pgqueue.retention
),
part as (  -- each table, and each day of the history
    select coalesce(whole.relname, one.relname)::text as name, one.relname, coalesce(said.n_live_tup, 0) as rows, pg_total_relation_size(one.oid) as bytes
    from pg_class as one
    left join pg_inherits on inhrelid = one.oid
    left join pg_class as whole on whole.oid = inhparent
    left join pg_stat_all_tables as said on said.relid = one.oid
    where one.relkind = 'r' and one.relnamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass)
),
day as (
    select to_date(right(relname, 8), 'YYYYMMDD') as day, rows, bytes from part
    where name = 'job_history' and relname ~ '^job_history_\d{8}$'
),
first_day as (  -- a day is dropped when all of it is older than the longest length
    select day::timestamp at time zone 'UTC' as since, rows, bytes, (day + 1)::timestamp at time zone 'UTC' as ends,
           case when not exists (select from pgqueue.lake_days) or exists (select from pgqueue.lake_days as verified where verified.day = day.day)
                then greatest((select history from said), (select extract(epoch from max(keep_history))::float8 from pgqueue.queues)) end as longest
    from day where rows > 0 or day < ((select now from clock) at time zone 'UTC')::date order by day limit 1
),
kind (place, what, tables, keeps, until, oldest, set_at, set_by) as (
    select 2, 'dead jobs', array['dead_jobs'], dead, null, (select died_at from pgqueue.dead_jobs order by ended_in limit 1), set_at, set_by from said
    union all
    select 3, 'workflows', array['flows', 'nodes', 'edges', 'node_counts'], history, null,
           (select min(ended_at) from pgqueue.flows where ended_at is not null), set_at, set_by from said
    union all
    select 4, 'ticks of schedules', array['schedule_ticks'], extract(epoch from %(fixed)s::interval)::float8, null,
           (select min(fired_at) from pgqueue.schedule_ticks), null, null
    union all
    select 5, 'signals', array['signals', 'deadlines'], extract(epoch from %(fixed)s::interval)::float8,
           'to keys; to jobs until they end', null, null, null
    union all
    select 6, 'figures of minutes', array['series_written', 'series_minutes', 'series_depths'], extract(epoch from keep_minutes)::float8, null,
           least((select min(at) from pgqueue.series_minutes where whole), (select min(at) from pgqueue.series_minutes where not whole),
                 (select min(at) from pgqueue.series_depths)), null, null
    from pgqueue.series_state
    union all
    select 7, 'figures of hours and days', array['series_hours', 'series_days', 'series_depth_hours'], extract(epoch from keep_hours)::float8, null,
           least((select min(at) from pgqueue.series_hours where whole), (select min(at) from pgqueue.series_hours where not whole),
                 (select min(at) from pgqueue.series_days where whole), (select min(at) from pgqueue.series_days where not whole),
                 (select min(at) from pgqueue.series_depth_hours)), null, null
    from pgqueue.series_state
    union all
    select 8, 'steps, checkpoints, progress, logs', array['notes'], null, 'their job has ended; logs: its record is gone', null, null, null
    union all
    select 9, 'unique keys for a period', array['unique_holds'], null, 'the period has passed', null, null, null
    union all
    select 10, 'stacks', array['stacks'], null, 'one is asked for 10 min later', null, null, null
    union all
    select 11, 'audit', array['audit'], null, 'you delete it', (select at from pgqueue.audit order by id limit 1), null, null
),
shown as (
    select 1 as place, 'history' as what, null::text as queue, said.history as keeps,
           case when exists (select from pgqueue.lake_days) then 'until the lake has them' end as until,
           (select sum(rows) from part where name = 'job_history')::bigint as rows,
           (select sum(bytes) from part where name = 'job_history')::bigint as bytes,
           first_day.since as oldest,
           case when longest < 8640000000 then first_day.ends + make_interval(secs => longest) end as next_at,
           case when longest < 8640000000 then first_day.rows end as frees_rows,
           case when longest < 8640000000 then first_day.bytes end as frees_bytes, set_at, set_by
    from said left join first_day on true
    union all
    select 1, 'history', name, extract(epoch from keep_history)::float8,
           case when keep_history = '0' then 'jobs that succeed are not kept' when exists (select from pgqueue.lake_days) then 'days stay whole: there is a lake' end,
           null, null, null, null, null, null, queues.set_at, queues.set_by
    from pgqueue.queues where keep_history is not null
    union all
    select kind.place, what, null, keeps, until, (select sum(rows) from part where name = any(tables))::bigint,
           (select sum(bytes) from part where name = any(tables))::bigint, oldest,
           case when keeps < 8640000000 and until is null then oldest + make_interval(secs => keeps) end, null, null, set_at, set_by
    from kind
    union all
    select 2, 'dead jobs', name, extract(epoch from keep_dead)::float8, null, null, null, null, null, null, null, queues.set_at, queues.set_by
    from pgqueue.queues where keep_dead is not null
)
select what, queue, keeps, until, rows, bytes, pgqueue.as_datetime(oldest), pgqueue.as_datetime(next_at), frees_rows, frees_bytes, set_at, set_by
from shown order by place, queue nulls first
