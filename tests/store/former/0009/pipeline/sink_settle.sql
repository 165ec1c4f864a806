-- pipeline/sink_settle: record how many of a write's rows were enqueued, rejected, or changed a job.
-- index: sink_writes_pkey
-- locks: the write's row, which this transaction made
-- run by: the sink, on the driver
update pgqueue.sink_writes
set enqueued = %(enqueued)s::bigint, rejected = %(rejected)s::bigint, changed = %(changed)s::bigint
where id = %(write)s::uuid
returning id, run, batch, task, rows, enqueued, rejected, changed, repeats, written_at
