-- pipeline/extract_kept: which of the tables that were read still exist, and their files.
-- index: none: the system's catalogue
-- locks: none
-- run by: spark.read and spark.readStream, in the transaction that has read them
select oid::bigint as piece, pg_relation_filenode(oid)::bigint as file
from pg_class
where oid = any(%(pieces)s::bigint[]) and pg_relation_filenode(oid) is not null
