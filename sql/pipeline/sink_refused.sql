-- pipeline/sink_refused: the rows of a write that cannot be jobs, in their order.
-- index: sink_refused_pkey
-- locks: none
-- run by: pgqueue.spark.refused_rows
-- rights: reader
select partition, place, contents, reason
from pgqueue.sink_refused
where write_id = %(write)s::uuid
order by partition, place
limit %(limit)s::integer
