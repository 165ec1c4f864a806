-- schedules/drop_ticks: delete ticks that were decided on more than 30 days ago; the waiting ones stay; how many rows.
-- index: schedule_ticks_fired_at
-- locks: those rows, skipping locked ones
-- run by: worker upkeep
with old as (
    delete from pgqueue.schedule_ticks
    where ctid = any(array(
        select ctid from pgqueue.schedule_ticks
        where fired_at < coalesce(%(now)s::timestamptz, now()) - %(kept)s::interval and state <> 'waiting'
        limit %(limit)s::integer for update skip locked))
    returning schedule
)
select count(*) from old
