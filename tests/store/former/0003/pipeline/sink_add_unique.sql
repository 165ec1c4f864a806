-- pipeline/sink_add_unique: enqueue the staged rows, but for those whose unique key a live job holds; how many.
-- index: jobs_unique_key, sink_rows_pkey
-- locks: as enqueue_unique; in the order of the keys, so that two writes never wait for each other in a circle
-- run by: the sink, on the driver
-- why: numbered in the order of the rows, since it is by their ids that jobs of one instant are served; inserted in that
--     of the keys as enqueue_many sorts them, which is the order of collation "C"
with numbered as materialized (
    select nextval('pgqueue.jobs_id_seq') as id, waiting.*
    from (select staged.*
          from unnest(%(attempts)s::uuid[]) with ordinality as chosen (attempt_id, turn)
          join pgqueue.sink_rows as staged using (attempt_id)
          order by chosen.turn, staged.place) as waiting
),
clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
added as (
    insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts,
                              unique_key, unique_until_started)
    select numbered.id, numbered.queue, %(task)s::text, numbered.args, numbered.priority,
           case when numbered.run_at > clock.now then 'scheduled' else 'ready' end,
           coalesce(numbered.run_at, clock.now), numbered.max_attempts,
           numbered.unique_key, %(unique_until_started)s::boolean
    from numbered, clock
    order by numbered.unique_key collate "C", numbered.id
    on conflict (unique_key) where unique_key is not null do nothing
    returning id
),
gone as (
    delete from pgqueue.sink_rows as staged
    using numbered join added on added.id = numbered.id
    where staged.attempt_id = numbered.attempt_id and staged.place = numbered.place
    returning staged.place
)
select count(*) from gone
