-- signals/look: whether a job's wait is over without a signal, whether the signal is there, and its payload.
-- index: signals_pkey, deadlines_pkey
-- locks: the row of the deadline, if that has passed
-- run by: Context.wait_for, Context.pause
-- why: it is decided once that a deadline has passed: a signal that arrives later does not change what later attempts see
with sent as (
    select payload from pgqueue.signals where target = %(target)s::text and name = %(name)s::text
),
over as (
    update pgqueue.deadlines set passed = true
    where job_id = %(job)s::bigint and waits_for = %(reason)s::text and not passed and not exists (select from sent)
      and until <= coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
    returning passed
)
select exists (select from over)
       or exists (select from pgqueue.deadlines where job_id = %(job)s::bigint and waits_for = %(reason)s::text and passed),
       exists (select from sent), (select payload::text from sent)
