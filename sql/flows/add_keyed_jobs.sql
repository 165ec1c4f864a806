-- flows/add_keyed_jobs: add the jobs of a flow that have a unique key, leaving out those whose key a live job holds.
-- index: jobs_unique_key
-- locks: as enqueue_batch; callers order the jobs by key
-- run by: the plan that enqueues flows
-- rights: producer --also flows
insert into pgqueue.jobs (id, {new}, {key}, status, flags)
select new.id, {new: new.NAME}, {key: new.NAME}, new.status, new.flags
from unnest(%(id)s::bigint[], {new: %(NAME)s::TYPE[]}, {key: %(NAME)s::TYPE[]}, %(status)s::text[], %(flags)s::smallint[])
     as new (id, {new}, {key}, status, flags)
on conflict (unique_key) where unique_key is not null do nothing
returning id
