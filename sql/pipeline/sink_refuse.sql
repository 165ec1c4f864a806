-- pipeline/sink_refuse: remove the staged rows that cannot be jobs, and record them; returns how many.
-- index: sink_rows_pkey
-- locks: the removed rows
-- run by: the sink, on the driver, where it diverts bad rows
-- rights: producer --also spark
with gone as (
    delete from pgqueue.sink_rows as staged
    using pgqueue.sink_attempts as attempt
    where staged.attempt_id = any(%(attempts)s::uuid[]) and staged.refusal is not null and attempt.id = staged.attempt_id
    returning attempt.partition, staged.place, staged.refusal
),
kept as (
    insert into pgqueue.sink_refused (write_id, partition, place, reason, contents, key)
    select %(write)s::uuid, partition, place, refusal ->> 'reason', refusal ->> 'contents', (refusal -> 'key')::json
    from gone
)
select count(*) from gone
