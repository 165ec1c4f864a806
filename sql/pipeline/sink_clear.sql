-- pipeline/sink_clear: delete the staged rows of these attempts.
-- index: sink_rows_pkey
-- locks: the deleted rows
-- run by: the sink, on the driver
-- rights: producer --also spark
delete from pgqueue.sink_rows where attempt_id = any(%(attempts)s::uuid[])
