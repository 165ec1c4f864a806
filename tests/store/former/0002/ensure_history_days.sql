-- ensure_history_days: make the history partitions of the coming days.
-- index: none
-- locks: the history's schema lock, when one is missing
-- run by: worker upkeep
select pgqueue.ensure_history_days(
    (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date,
    (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date + %(days)s::integer)
