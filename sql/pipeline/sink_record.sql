-- pipeline/sink_record: record a write, unless one of its name is recorded already.
-- index: sink_writes_once
-- locks: waits for a transaction that is recording a write of the same name
-- run by: the sink, on the driver
-- rights: producer --also spark
insert into pgqueue.sink_writes (id, run, query, batch, task, key, rows, enqueued, rejected, changed)
values (%(write)s::uuid, %(run)s::text, %(query)s::text, %(batch)s::bigint, %(task)s::text, %(key)s::json, %(rows)s::bigint, 0, 0, 0)
on conflict (coalesce(query, run), coalesce(batch, -1)) where repeats is null do nothing
returning id
