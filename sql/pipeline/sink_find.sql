-- pipeline/sink_find: the write that enqueued the jobs of a name.
-- index: sink_writes_once
-- locks: none
-- run by: the sink, on the driver
-- rights: producer --also spark
select id, run, batch, task, rows, enqueued, rejected, changed, repeats, written_at, refused, query
from pgqueue.sink_writes
where coalesce(query, run) = coalesce(%(query)s::text, %(run)s::text) and coalesce(batch, -1) = coalesce(%(batch)s::bigint, -1)
  and repeats is null
