-- pipeline/lake_readers: the sessions that use the history's tables now.
-- index: none
-- locks: none
-- run by: pipeline prune
select distinct activity.pid, activity.application_name, activity.usename::text, activity.datname::text,
       extract(epoch from statement_timestamp() - activity.xact_start)::float8
from pg_locks as held join pg_stat_activity as activity on activity.pid = held.pid
where held.locktype = 'relation' and held.granted and held.pid <> pg_backend_pid()
  and held.database = (select oid from pg_database where datname = current_database())
  and held.relation in (select 'pgqueue.job_history'::regclass union all select 'pgqueue.job_history_default'::regclass)
order by 5 desc nulls last
