-- pipeline/extract_workers: worker processes, present and former ones, as Spark sees them.
-- index: none: all of them
-- locks: none
-- run by: spark.read, table workers
select id::text as id, started_at, null::timestamptz as ended_at, concurrency, host, version,
       array_to_json(queues)::text as queues
from pgqueue.workers
union all
select id::text, started_at, ended_at, concurrency, host, version, array_to_json(queues)::text
from pgqueue.former_workers
