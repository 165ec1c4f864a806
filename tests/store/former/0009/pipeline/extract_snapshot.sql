-- pipeline/extract_snapshot: export this transaction's snapshot, so that other connections can use it.
-- index: none
-- locks: none
-- run by: pgqueue.spark.reading.reader.snapshot
select pg_export_snapshot()
