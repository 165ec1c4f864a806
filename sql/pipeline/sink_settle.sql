-- pipeline/sink_settle: record how many of a write's rows were enqueued, rejected, refused, or changed a job, and the ids of the jobs.
-- index: sink_writes_pkey
-- locks: the write's row, which this transaction made
-- run by: the sink, on the driver
-- rights: producer --also spark
update pgqueue.sink_writes
set enqueued = %(enqueued)s::bigint, rejected = %(rejected)s::bigint, changed = %(changed)s::bigint,
    refused = %(refused)s::bigint, jobs = coalesce((select range_agg(ids) from unnest(%(jobs)s::text[]::int8multirange[]) as ids), '{}')
where id = %(write)s::uuid
returning id, run, batch, task, rows, enqueued, rejected, changed, repeats, written_at, refused, query
