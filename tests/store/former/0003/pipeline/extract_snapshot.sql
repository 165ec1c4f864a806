-- pipeline/extract_snapshot: export this transaction's snapshot, so that others can read what it sees.
-- index: none
-- locks: none
-- run by: pgqueue.spark.reading.reader.snapshot
select pg_export_snapshot()
