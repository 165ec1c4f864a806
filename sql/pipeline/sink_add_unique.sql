-- pipeline/sink_add_unique: enqueue the staged rows, except those whose unique key a live job holds; returns how many, and their ids.
-- index: jobs_unique_key, sink_rows_pkey (of queues each row)
-- locks: as enqueue_unique; in the order of the keys, so that two writes never deadlock
-- run by: the sink, on the driver
-- rights: producer --also spark,unique
-- why: ids are given in the order of the rows, because workers claim jobs of one instant by id; rows are inserted in the
--     order of the keys, by collation "C", as enqueue_many does
with numbered as materialized (
    select nextval('pgqueue.jobs_id_seq') as id, waiting.*
    from (select staged.*
          from unnest(%(attempts)s::uuid[]) with ordinality as chosen (attempt_id, turn)
          join pgqueue.sink_rows as staged using (attempt_id)
          where staged.refusal is null
          order by chosen.turn, staged.place) as waiting
),
clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
added as (
    insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts,
                              unique_key, unique_until_started, {sent}, {limited}, in_lane)
    select numbered.id, numbered.queue, %(task)s::text, numbered.args, coalesce(numbered.priority, setting.priority, 0),
           case when numbered.run_at > clock.now then 'scheduled' when numbered.lane is null then 'ready' else 'blocked' end,
           coalesce(numbered.run_at, clock.now), coalesce(numbered.max_attempts, setting.max_attempts, 25),
           numbered.unique_key, %(unique_until_started)s::boolean, {sent: numbered.NAME}, {limited: numbered.NAME},
           case when numbered.lane is not null and coalesce(numbered.run_at, clock.now) <= clock.now then true end
    from clock, numbered left join pgqueue.queues as setting on setting.name = numbered.queue
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
select count(*), (select pgqueue.put_in_lanes(array_agg(id)) from added),
       (select range_agg(int8range(id, id, '[]')) from added)::text
from gone
