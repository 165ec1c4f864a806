-- retention/find_uncleared: the days of the history that stay and have jobs which their queue keeps for a shorter time, and the pages to read.
-- index: none: reads the catalogue, and a row for each queue with settings
-- locks: none
-- run by: worker upkeep
-- rights: monitor
-- why: days that no queue keeps are dropped whole. Where there is a lake its export verifies whole days, so days stay whole
with due as (
    select min(first_kept) over () as first_day, first_kept, case when cut <= first_kept then cut end as cut from (
        select history_cut as cut, case when history < '100000 days' then ((coalesce(%(now)s::timestamptz, now()) - history) at time zone 'UTC')::date else '-infinity' end as first_kept
        from pgqueue.retention
        union all
        select history_cut, case when keep_history < '100000 days' then ((coalesce(%(now)s::timestamptz, now()) - keep_history) at time zone 'UTC')::date else '-infinity' end
        from pgqueue.queues where keep_history > '0') as kept
),
day as (
    select to_date(right(relname, 8), 'YYYYMMDD') as day,
           (pg_relation_size(pg_class.oid) / current_setting('block_size')::bigint)::bigint as pages
    from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'pgqueue.job_history'::regclass and relname ~ '^job_history_\d{8}$'
)
select to_char(day, 'YYYY-MM-DD'), pages
from day
where exists (select from due where day >= first_day and day < first_kept and day >= coalesce(cut, '-infinity'))
  and not exists (select from pgqueue.lake_days)
order by day
