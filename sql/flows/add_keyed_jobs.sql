-- flows/add_keyed_jobs: add the jobs of a flow that have a unique key, leaving out those whose key a live job holds.
-- index: jobs_unique_key
-- locks: as enqueue_batch; callers order the jobs by key
-- run by: the plan that enqueues flows
-- rights: producer --also flows
insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts, unique_key, unique_until_started,
                          meta, flags, expires_at)
select new.id, new.queue, new.task, new.args::json, new.priority, new.status, new.run_at, new.max_attempts, new.unique_key,
       new.unique_until_started, new.meta::jsonb, new.flags, new.expires_at
from unnest(%(ids)s::bigint[], %(queues)s::text[], %(tasks)s::text[], %(args)s::text[], %(priorities)s::smallint[],
            %(statuses)s::text[], %(run_ats)s::timestamptz[], %(max_attempts)s::smallint[], %(unique_keys)s::text[],
            %(unique_until_started)s::boolean[], %(metas)s::text[], %(flags)s::smallint[], %(expires_ats)s::timestamptz[])
     as new (id, queue, task, args, priority, status, run_at, max_attempts, unique_key, unique_until_started, meta, flags,
             expires_at)
on conflict (unique_key) where unique_key is not null do nothing
returning id
