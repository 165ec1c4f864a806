-- pipeline/extract_pieces: the tables or partitions that hold the rows, with their files and numbers of pages.
-- index: none: the system's catalogue
-- locks: none
-- run by: spark.read, spark.readStream
select piece.oid::bigint, coalesce(parent.relname, piece.relname)::text, piece.relname::text,
       pg_relation_filenode(piece.oid)::bigint, pg_relation_size(piece.oid) / current_setting('block_size')::bigint
from pg_class as piece
left join pg_inherits on inhrelid = piece.oid
left join pg_class as parent on parent.oid = inhparent
where piece.relkind = 'r'
  and piece.relnamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass)
  and coalesce(parent.relname, piece.relname) = any(%(tables)s::text[])
order by piece.relname
