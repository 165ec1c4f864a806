-- workers/lost_workers: the workers that left the list and may have left running jobs behind; the caller reclaims those jobs.
-- index: none (hardly ever a row)
-- locks: those rows, skipping locked ones
-- run by: worker upkeep, take
select worker_id from pgqueue.lost_workers
where again_at is null or again_at <= coalesce(%(now)s::timestamptz, now())
for update skip locked
