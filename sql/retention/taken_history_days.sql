-- retention/taken_history_days: of today and the coming days, the relations that have the name of a day's partition and are none.
-- index: none
-- locks: none
-- run by: worker upkeep
select taken.oid::regclass::text
from (select (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date as today) as clock
cross join lateral generate_series(today::timestamp, today + %(days)s::integer * interval '1 day', '1 day') as day
join pg_class as taken on taken.oid = to_regclass('pgqueue.job_history_' || to_char(day, 'YYYYMMDD'))
where not exists (
    select from pg_inherits where inhrelid = taken.oid and inhparent = to_regclass('pgqueue.job_history'))
order by taken.relname
