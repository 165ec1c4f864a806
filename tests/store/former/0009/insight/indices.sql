-- insight/indices: the largest indices, and how often each was read; those of partitions are left out.
-- index: none: catalogues
-- locks: none
-- run by: Insight.store
select of.relname, home.relname, pg_catalog.pg_relation_size(of.oid) as bytes, coalesce(said.idx_scan, 0)
from pg_catalog.pg_class as home
join pg_catalog.pg_index as entry on entry.indrelid = home.oid
join pg_catalog.pg_class as of on of.oid = entry.indexrelid
left join pg_catalog.pg_stat_all_indexes as said on said.indexrelid = of.oid
where home.relkind = 'r' and not home.relispartition
  and home.relnamespace = (select relnamespace from pg_catalog.pg_class where oid = 'pgqueue.jobs'::regclass)
order by bytes desc, of.relname
limit %(limit)s::integer
