-- insight/history: how many partitions the history has, the first and the last day, ended jobs of other days, the time, the server.
-- index: none: catalogues
-- locks: none
-- run by: Insight.store
select count(day), pgqueue.as_datetime(min(day)::timestamp at time zone 'UTC'),
       pgqueue.as_datetime(max(day)::timestamp at time zone 'UTC'),
       greatest((select reltuples from pg_catalog.pg_class where oid = 'pgqueue.job_history_default'::regclass), 0)::bigint,
       coalesce(%(now)s::timestamptz, now()), pg_catalog.current_setting('server_version'),
       pg_catalog.current_setting('autovacuum_freeze_max_age')::integer
from (select to_date(right(part.relname, 8), 'YYYYMMDD') as day
      from pg_catalog.pg_inherits join pg_catalog.pg_class as part on part.oid = inhrelid
      where inhparent = 'pgqueue.job_history'::regclass and part.relname ~ '^job_history_\d{8}$') as days
