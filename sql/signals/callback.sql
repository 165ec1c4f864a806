-- signals/callback: note the deadline of a callback, if it has one; its token, the same for all attempts of the job.
-- index: deadlines_pkey
-- locks: the new row of deadlines
-- run by: Context.callback
-- rights: worker
with noted as (
    insert into pgqueue.deadlines (job_id, waits_for, until)
    select %(job)s::bigint, %(reason)s::text,
           coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) + %(timeout)s::interval
    where %(timeout)s::interval is not null
    on conflict do nothing
    returning until
)
select pgqueue.callback_token(%(job)s::bigint, %(name)s::text, coalesce(
    (select until from pgqueue.deadlines where job_id = %(job)s::bigint and waits_for = %(reason)s::text),
    (select until from noted)))
