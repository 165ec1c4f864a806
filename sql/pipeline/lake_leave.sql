-- pipeline/lake_leave: forget which days are verified in a lake; how many there were, and how many other lakes have.
-- index: none
-- locks: those rows
-- run by: pipeline leave
with gone as (
    delete from pgqueue.lake_days where lake = %(lake)s::text returning 1
)
select (select count(*) from gone), (select count(*) from pgqueue.lake_days where lake <> %(lake)s::text)
