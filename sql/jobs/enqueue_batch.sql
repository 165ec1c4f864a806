-- jobs/enqueue_batch: add many jobs, leaving out those whose unique key a live job holds.
-- index: jobs_unique_key
-- locks: as enqueue_unique; callers order the batch by key, so that two batches never wait for each other in a circle
-- run by: PgQueue.enqueue_many
-- rights: producer --also unique
insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts,
                          unique_key, unique_until_started, meta, expires_at, lane, in_lane, cost)
select new.id, new.queue, new.task, new.args::json, new.priority,
       case when new.run_at > clock.now then 'scheduled' when new.lane is null then 'ready' else 'blocked' end,
       new.run_at, new.max_attempts, new.unique_key, new.unique_until_started, new.meta::jsonb,
       new.expires_at, new.lane, case when new.lane is not null and new.run_at <= clock.now then true end, new.cost
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock, unnest(%(ids)s::bigint[], %(queues)s::text[], %(tasks)s::text[], %(args)s::text[], %(priorities)s::smallint[],
            %(run_ats)s::timestamptz[], %(max_attempts)s::smallint[], %(unique_keys)s::text[],
            %(unique_until_started)s::boolean[], %(metas)s::text[],
            %(expires_ats)s::timestamptz[], %(lanes)s::text[], %(costs)s::integer[])
     as new (id, queue, task, args, priority, run_at, max_attempts, unique_key, unique_until_started, meta, expires_at, lane, cost)
on conflict (unique_key) where unique_key is not null do nothing
returning id
