-- insight/run_written: of a run: its key columns, the ids of its jobs, its first write, and how many rows did not become jobs.
-- index: sink_writes_run
-- locks: none
-- run by: spark.read and spark.readStream, option results
-- rights: monitor
select array_agg(distinct coalesce(key::text, '')), pgqueue.jobs_of_run(%(run)s::text)::text, min(written_at), sum(rejected + refused)::bigint
from pgqueue.sink_writes
where run = %(run)s::text and repeats is null
having count(*) > 0
