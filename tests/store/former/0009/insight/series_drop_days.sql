-- insight/series_drop_days: delete days that are older than hours are kept, up to a number.
-- index: series_days_at
-- locks: the deleted rows
-- run by: worker upkeep
with kept as (
    select coalesce(%(now)s::timestamptz, now()) - keep_hours as since from pgqueue.series_state
),
old as (
    (select ctid from pgqueue.series_days where whole and at < (select since from kept) order by at limit %(limit)s::integer)
    union all
    (select ctid from pgqueue.series_days where not whole and at < (select since from kept) order by at limit %(limit)s::integer)
),
dropped as (
    delete from pgqueue.series_days
    where ctid = any(array(select ctid from old limit %(limit)s::integer)) and at < (select since from kept)
    returning 1
)
select count(*) from dropped
