-- retention/drop_history: drop the history partitions that lie wholly before the stored retention.
-- index: none
-- locks: the history's table lock, for 200 ms at most
-- run by: worker upkeep
-- rights: worker
select pgqueue.drop_old_history(coalesce(%(now)s::timestamptz, now()))
