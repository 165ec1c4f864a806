-- pipeline/sink_rejected: the rows of a write whose unique key was taken, in their order.
-- index: sink_rejected_pkey
-- locks: none
-- run by: pgqueue.spark.rejected
-- rights: reader
select partition, place, unique_key, job_id
from pgqueue.sink_rejected
where write_id = %(write)s::uuid
order by partition, place
limit %(limit)s::integer
