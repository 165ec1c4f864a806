-- pipeline/lake_holder: the session that is writing to the lake.
-- index: none
-- locks: none
-- run by: pipeline export, verify, prune
select held.pid, coalesce(activity.application_name, ''), coalesce(activity.client_addr::text, 'this host'),
       extract(epoch from clock_timestamp() - activity.backend_start)::float8
from pg_locks as held left join pg_stat_activity as activity on activity.pid = held.pid
where held.locktype = 'advisory' and held.granted and held.objsubid = 2 and held.objid = 1
  and held.database = (select oid from pg_database where datname = current_database())
  and held.classid = (hashtext('pgqueue.lake')::bigint & 4294967295)::oid
