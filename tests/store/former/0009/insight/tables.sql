-- insight/tables: of each table, partitions counted with theirs: rows, size, the last vacuum and analyze, the age of its rows.
-- index: none: catalogues
-- locks: none
-- run by: Insight.store
select coalesce(whole.relname, part.relname) as name,
       sum(coalesce(said.n_live_tup, 0))::bigint, sum(coalesce(said.n_dead_tup, 0))::bigint,
       sum(pg_catalog.pg_total_relation_size(part.oid))::bigint as bytes, sum(pg_catalog.pg_indexes_size(part.oid))::bigint,
       max(greatest(said.last_vacuum, said.last_autovacuum)), max(greatest(said.last_analyze, said.last_autoanalyze)),
       max(pg_catalog.age(part.relfrozenxid))
from pg_catalog.pg_class as part
left join pg_catalog.pg_inherits as inherits on inherits.inhrelid = part.oid
left join pg_catalog.pg_class as whole on whole.oid = inherits.inhparent
left join pg_catalog.pg_stat_all_tables as said on said.relid = part.oid
where part.relkind = 'r'
  and part.relnamespace = (select relnamespace from pg_catalog.pg_class where oid = 'pgqueue.jobs'::regclass)
group by 1 order by bytes desc, name
