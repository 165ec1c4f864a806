-- jobs/enqueue_rows: add many jobs without unique keys, as a role that may not choose their ids; the ids, in the order of the jobs.
-- index: none
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
-- rights: producer
-- why: COPY tells no ids, so its ids are taken before; a producer that chose an id ahead of the sequence would stop other programs' enqueues
insert into pgqueue.jobs (queue, task, args, priority, status, run_at, max_attempts, meta, expires_at, lane, in_lane, cost)
select new.queue, new.task, new.args::json, new.priority,
       case when new.run_at > clock.now then 'scheduled' when new.lane is null then 'ready' else 'blocked' end,
       new.run_at, new.max_attempts, new.meta::jsonb, new.expires_at,
       new.lane, case when new.lane is not null and new.run_at <= clock.now then true end, new.cost
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock,
     unnest(%(queues)s::text[], %(tasks)s::text[], %(args)s::text[], %(priorities)s::smallint[], %(run_ats)s::timestamptz[],
            %(max_attempts)s::smallint[], %(metas)s::text[], %(expires_ats)s::timestamptz[], %(lanes)s::text[], %(costs)s::integer[])
     with ordinality as new (queue, task, args, priority, run_at, max_attempts, meta, expires_at, lane, cost, place)
order by place
returning id
