-- pipeline/sink_repeat: record a write that enqueued nothing, because an earlier write of its name had enqueued the jobs.
-- index: none
-- locks: none beyond the new row
-- run by: the sink, on the driver
-- rights: producer --also spark
insert into pgqueue.sink_writes (id, run, query, batch, task, rows, enqueued, rejected, changed, repeats)
values (%(write)s::uuid, %(run)s::text, %(query)s::text, %(batch)s::bigint, %(task)s::text, %(rows)s::bigint, 0, 0, 0, %(repeats)s::uuid)
returning id, run, batch, task, rows, enqueued, rejected, changed, repeats, written_at, refused, query
