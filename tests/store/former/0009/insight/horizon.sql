-- insight/horizon: the oldest snapshots that keep vacuum from removing dead rows of this database, and whose they are.
-- index: none: what the server says of itself
-- locks: none
-- run by: Insight.store
-- why: of sessions of other users only a member of pg_read_all_stats sees the snapshot
select kind, name, transactions, pid, usename, datname, state, since, query_at
from (select case when backend_type = 'walsender' then 'standby' else 'session' end as kind,
             coalesce(application_name, '') as name,
             greatest(coalesce(pg_catalog.age(backend_xmin), 0), coalesce(pg_catalog.age(backend_xid), 0)) as transactions,
             pid, usename::text, datname::text, state, xact_start as since, query_start as query_at
      from pg_catalog.pg_stat_activity
      where (backend_xmin is not null or backend_xid is not null) and pid <> pg_catalog.pg_backend_pid()
        and (datname = pg_catalog.current_database() or backend_type = 'walsender')
        and backend_type is distinct from 'autovacuum worker'
      union all
      select 'prepared transaction', gid, pg_catalog.age(transaction), null, owner::text, database::text, null, prepared, null
      from pg_catalog.pg_prepared_xacts where database = pg_catalog.current_database()
      union all
      select 'replication slot', slot_name::text, pg_catalog.age(xmin), active_pid, null, database::text,
             case when active then 'active' else 'inactive' end, null, null
      from pg_catalog.pg_replication_slots where xmin is not null) as held
order by transactions desc, since nulls last
limit %(limit)s::integer
