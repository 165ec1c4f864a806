-- release_holds: forget unique keys whose period is over.
-- index: none (a small table)
-- locks: the forgotten rows
-- run by: worker upkeep
delete from pgqueue.unique_holds
where held_until <= coalesce(%(now)s::timestamptz, now())
returning unique_key
