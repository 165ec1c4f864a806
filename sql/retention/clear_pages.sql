-- retention/clear_pages: delete from some pages of a day of the history the jobs that their queue no longer keeps; how many.
-- index: none: reads these pages
-- locks: the deleted rows
-- run by: worker upkeep
-- why: each portion reads the lengths again, so a length that an operator raises meanwhile holds from the next portion on
with own as (
    select name, keep_history < '100000 days' and %(day)s::date < ((coalesce(%(now)s::timestamptz, now()) - keep_history) at time zone 'UTC')::date as over
    from pgqueue.queues where keep_history > '0'
),
deleted as (
    delete from pgqueue.job_history
    where finished_at >= %(day)s::date::timestamp at time zone 'UTC' and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ctid >= %(from_page)s::tid and ctid < %(to_page)s::tid
      and (queue in (select name from own where over)
           or queue not in (select name from own)
              and (select history < '100000 days' and %(day)s::date < ((coalesce(%(now)s::timestamptz, now()) - history) at time zone 'UTC')::date from pgqueue.retention))
    returning 1
)
select count(*) from deleted
