-- drop_history: drop the history partitions that lie wholly before the retention.
-- index: none
-- locks: the history's table lock, for 200 ms at most
-- run by: worker upkeep
select pgqueue.drop_history_before(
    ((coalesce(%(now)s::timestamptz, now()) - %(retention)s::interval) at time zone 'UTC')::date)
