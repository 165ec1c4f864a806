-- pipeline/extract_unqueued: the rows of a run that did not become jobs, as its results: rejected ones with the job that held their unique key.
-- index: none: sink_writes_run, sink_rejected_pkey and sink_refused_pkey, by the run that is asked for
-- locks: none
-- run by: spark.read, option results
select rejected.job_id, 'rejected'::text as state, null::text as reason, write.task, null::text as meta, rejected.key::text as key,
       null::text as result, null::text as error_type, null::text as error_message, null::text as error_encoded, null::smallint as attempts,
       null::float8 as waited, null::float8 as ran, null::timestamptz as ended_at, write.run
from pgqueue.sink_writes as write
join pgqueue.sink_rejected as rejected on rejected.write_id = write.id
where write.repeats is null
union all
select null, 'refused', null, write.task, null, refused.key::text, null, null, refused.reason, null, null, null, null, null, write.run
from pgqueue.sink_writes as write
join pgqueue.sink_refused as refused on refused.write_id = write.id
where write.repeats is null
