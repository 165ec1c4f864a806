-- jobs/release_holds: forget unique keys whose period is over, some at a time.
-- index: unique_holds_pkey (and reads the keys from end to end)
-- locks: the forgotten rows, skipping locked ones
-- run by: worker upkeep
delete from pgqueue.unique_holds
where unique_key = any(array(
    select unique_key from pgqueue.unique_holds
    where held_until <= coalesce(%(now)s::timestamptz, now())
    limit %(limit)s::integer
    for update skip locked))
returning unique_key
