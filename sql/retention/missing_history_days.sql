-- retention/missing_history_days: of today and the coming days, those for which the history has no partition.
-- index: none
-- locks: none
-- run by: worker upkeep
-- rights: worker
select to_char(day, 'YYYY-MM-DD')
from (select (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date as today) as clock
cross join lateral generate_series(today::timestamp, today + %(days)s::integer * interval '1 day', '1 day') as day
where pgqueue.history_partition(day::date) is null
