-- pipeline/sink_forget: delete old writes that no driver can repeat, and the rejected rows of all old writes.
-- index: sink_writes_written_at, sink_writes_run, sink_rejected_pkey
-- locks: the deleted rows
-- run by: the sink, on the driver, before it writes
-- why: a driver can repeat only the last batch of a stream, and any write with a user's name
with old as materialized (
    select write.id, write.repeats is not null or write.run is null or write.batch < (
               select max(coalesce(latest.batch, -1)) from pgqueue.sink_writes as latest
               where latest.run = write.run and latest.repeats is null) as spent
    from pgqueue.sink_writes as write
    where write.written_at < coalesce(%(now)s::timestamptz, now()) - %(keep)s::interval
),
unlisted as (
    delete from pgqueue.sink_rejected where write_id in (select id from old)
)
delete from pgqueue.sink_writes where id in (select id from old where spent)
