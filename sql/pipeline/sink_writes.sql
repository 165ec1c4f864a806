-- pipeline/sink_writes: the latest writes that match.
-- index: sink_writes_written_at
-- locks: none
-- run by: pgqueue.spark.writes
-- rights: monitor
select id, run, batch, task, rows, enqueued, rejected, changed, repeats, written_at, refused, query
from pgqueue.sink_writes
where (%(run)s::text is null or run = %(run)s::text)
  and (%(task)s::text is null or task = %(task)s::text)
order by written_at desc
limit %(limit)s::integer
