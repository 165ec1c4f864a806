-- jobs/enqueue_batch: add many jobs, leaving out those whose unique key a live job holds.
-- index: jobs_unique_key
-- locks: as enqueue_unique; callers order the batch by key, so that two batches never wait for each other in a circle
-- run by: PgQueue.enqueue_many
-- rights: producer --also unique
insert into pgqueue.jobs (id, {new}, {limited}, {key}, status, in_lane)
select new.id, {new: new.NAME}, {limited: new.NAME}, {key: new.NAME},
       case when new.run_at > clock.now then 'scheduled' when new.lane is null then 'ready' else 'blocked' end,
       case when new.lane is not null and new.run_at <= clock.now then true end
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock,
     unnest(%(id)s::bigint[], {new: %(NAME)s::TYPE[]}, {limited: %(NAME)s::TYPE[]}, {key: %(NAME)s::TYPE[]})
     as new (id, {new}, {limited}, {key})
on conflict (unique_key) where unique_key is not null do nothing
returning id
