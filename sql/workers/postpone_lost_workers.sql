-- workers/postpone_lost_workers: have the sweeper try these lost workers again later: one of their jobs could not be ended.
-- index: lost_workers_pkey
-- locks: those rows
-- run by: worker upkeep, take
update pgqueue.lost_workers set again_at = coalesce(%(now)s::timestamptz, now()) + %(pause)s::interval
where worker_id = any(%(workers)s::uuid[])
