-- pipeline/sink_add: enqueue the staged rows of a partition that have no unique key, in order, with what their queues say; returns how many, and their ids.
-- index: sink_rows_pkey (of queues each row)
-- locks: none beyond the new rows
-- run by: the sink, on the driver
-- rights: producer --also spark
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
added as (
    insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, {sent}, {limited}, in_lane)
    select waiting.queue, %(task)s::text, waiting.args, coalesce(waiting.priority, setting.priority, 0),
           case when waiting.run_at > clock.now then 'scheduled' when waiting.lane is null then 'ready' else 'blocked' end,
           coalesce(waiting.run_at, clock.now), coalesce(waiting.max_attempts, setting.max_attempts, 25), {sent: waiting.NAME}, {limited: waiting.NAME},
           case when waiting.lane is not null and coalesce(waiting.run_at, clock.now) <= clock.now then true end
    from clock, pgqueue.sink_rows as waiting left join pgqueue.queues as setting on setting.name = waiting.queue
    where waiting.attempt_id = %(attempt)s::uuid and waiting.unique_key is null and waiting.refusal is null
    order by waiting.place
    returning id
)
select count(*), pgqueue.put_in_lanes(array_agg(id)),
       case when max(id) - min(id) < count(*) then int8range(min(id), max(id), '[]')::int8multirange
            else (select range_agg(int8range(id, id, '[]')) from added) end::text
from added
