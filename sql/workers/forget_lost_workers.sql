-- workers/forget_lost_workers: forget these lost workers: none of their jobs is left.
-- index: lost_workers_pkey
-- locks: those rows
-- run by: worker upkeep, take
delete from pgqueue.lost_workers where worker_id = any(%(workers)s::uuid[])
