-- pipeline/sink_forget: forget writes of long ago that nobody can repeat, and which rows any write of long ago rejected.
-- index: sink_writes_written_at, sink_writes_run, sink_rejected_pkey
-- locks: the forgotten rows
-- run by: the sink, on the driver, before it writes
-- why: of a stream only the last batch can come again; a name that a user gave may
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
