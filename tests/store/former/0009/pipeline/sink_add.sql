-- pipeline/sink_add: enqueue the staged rows of a partition that have no unique key, in order, with what their queues say, and count them.
-- index: sink_rows_pkey (of queues each row)
-- locks: none beyond the new rows
-- run by: the sink, on the driver
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
added as (
    insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts)
    select waiting.queue, %(task)s::text, waiting.args, coalesce(waiting.priority, setting.priority, 0),
           case when waiting.run_at > clock.now then 'scheduled' else 'ready' end,
           coalesce(waiting.run_at, clock.now), coalesce(waiting.max_attempts, setting.max_attempts, 25)
    from clock, pgqueue.sink_rows as waiting left join pgqueue.queues as setting on setting.name = waiting.queue
    where waiting.attempt_id = %(attempt)s::uuid and waiting.unique_key is null
    order by waiting.place
    returning id
)
select count(*), pgqueue.put_in_lanes(array_agg(id)) from added
