-- pipeline/sink_note: record rows whose unique key was taken.
-- index: none
-- locks: none beyond the new rows
-- run by: the sink, on the driver
-- rights: producer --also spark
insert into pgqueue.sink_rejected (write_id, partition, place, unique_key, job_id, key)
select %(write)s::uuid, rejected.partition, rejected.place, rejected.unique_key, rejected.job_id, rejected.key::json
from unnest(%(partitions)s::integer[], %(places)s::integer[], %(unique_keys)s::text[], %(job_ids)s::bigint[], %(keys)s::text[])
     as rejected (partition, place, unique_key, job_id, key)
