-- pipeline/sink_forget: delete old writes that no driver can repeat, and the rejected and refused rows of all old writes.
-- index: sink_writes_written_at, sink_writes_once, sink_rejected_pkey, sink_refused_pkey
-- locks: the deleted rows
-- run by: the sink, on the driver, before it writes
-- rights: producer --also spark
-- why: a driver can repeat only the last batch of a stream, and any write with a user's name. The last batch keeps the ids of the jobs of the
--      deleted ones, since they are jobs of its run. A stream's writes are found as the index has them, by coalesce(query, run)
with old as materialized (
    select write.id, write.run, write.query, write.jobs, write.earlier,
           write.repeats is not null or write.run is null or write.batch < (
               select max(coalesce(latest.batch, -1)) from pgqueue.sink_writes as latest
               where coalesce(latest.query, latest.run) = write.query and latest.query = write.query and latest.repeats is null) as spent
    from pgqueue.sink_writes as write
    where write.written_at < coalesce(%(now)s::timestamptz, now()) - %(keep)s::interval
),
rejected as (
    delete from pgqueue.sink_rejected where write_id in (select id from old)
),
refused as (
    delete from pgqueue.sink_refused where write_id in (select id from old)
),
gone as (
    delete from pgqueue.sink_writes where id in (select id from old where spent)
    returning run, query, repeats, jobs, earlier
)
update pgqueue.sink_writes as last
set earlier = last.earlier + before.ids
from (select query, range_agg(ids) as ids from gone, unnest(array[gone.jobs, gone.earlier]) as ids
      where query is not null and repeats is null group by query) as before
where coalesce(last.query, last.run) = before.query and last.query = before.query and last.repeats is null
  and coalesce(last.batch, -1) = (
      select max(coalesce(latest.batch, -1)) from pgqueue.sink_writes as latest
      where coalesce(latest.query, latest.run) = before.query and latest.query = before.query and latest.repeats is null)
