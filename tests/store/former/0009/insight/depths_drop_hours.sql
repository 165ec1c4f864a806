-- insight/depths_drop_hours: delete depths of hours that are older than hours are kept, up to a number.
-- index: series_depth_hours_at
-- locks: the deleted rows
-- run by: worker upkeep
with old as (
    select ctid, at from pgqueue.series_depth_hours
    where at < coalesce(%(now)s::timestamptz, now()) - (select keep_hours from pgqueue.series_state)
    order by at limit %(limit)s::integer
),
dropped as (
    delete from pgqueue.series_depth_hours where ctid = any(array(select ctid from old)) and at <= (select max(at) from old)
    returning 1
)
select count(*) from dropped
