-- bulk/lock_dead: as bulk/lock, for dead jobs.
-- index: dead_jobs_pkey
-- locks: those rows; rows that others hold locked are skipped
-- run by: QueueControl.dead
select id, false
from pgqueue.dead_jobs
where id = any(%(ids)s::bigint[]) and xmin::text = (%(versions)s::text[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]
order by id
for update skip locked
