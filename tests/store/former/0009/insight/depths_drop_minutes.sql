-- insight/depths_drop_minutes: delete depths of minutes that are older than minutes are kept, up to a number.
-- index: series_depths_at
-- locks: the deleted rows
-- run by: worker upkeep
with old as (
    select ctid, at from pgqueue.series_depths
    where at < coalesce(%(now)s::timestamptz, now()) - (select keep_minutes from pgqueue.series_state)
    order by at limit %(limit)s::integer
),
dropped as (
    delete from pgqueue.series_depths where ctid = any(array(select ctid from old)) and at <= (select max(at) from old)
    returning 1
)
select count(*) from dropped
