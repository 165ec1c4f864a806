-- insight/series_drop_hours: delete hours that are older than hours are kept, and of which days are made, up to a number.
-- index: series_hours_at
-- locks: the deleted rows
-- run by: worker upkeep
with kept as (
    select least(coalesce(%(now)s::timestamptz, now()) - keep_hours, days_until) as since from pgqueue.series_state
),
old as (
    (select ctid from pgqueue.series_hours where whole and at < (select since from kept) order by at limit %(limit)s::integer)
    union all
    (select ctid from pgqueue.series_hours where not whole and at < (select since from kept) order by at limit %(limit)s::integer)
),
dropped as (
    delete from pgqueue.series_hours
    where ctid = any(array(select ctid from old limit %(limit)s::integer)) and at < (select since from kept)
    returning 1
)
select count(*) from dropped
