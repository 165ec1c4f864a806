-- workers/note_lost_jobs: note of lost workers how many of their jobs were taken over.
-- index: former_workers_pkey
-- locks: those rows
-- run by: worker upkeep, take
update pgqueue.former_workers as worker
set lost_jobs = coalesce(worker.lost_jobs, 0) + lost.jobs
from unnest(%(workers)s::uuid[], %(jobs)s::integer[]) as lost (id, jobs)
where worker.id = lost.id
