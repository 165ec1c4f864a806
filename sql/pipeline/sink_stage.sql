-- pipeline/sink_stage: stage rows of a partition.
-- index: none
-- locks: none beyond the new rows
-- run by: the sink, on executors
-- rights: producer --also spark
copy pgqueue.sink_rows (attempt_id, place, queue, priority, max_attempts, args, run_at, unique_key, meta, refusal, lane, cost) from stdin with (encoding 'utf8')
