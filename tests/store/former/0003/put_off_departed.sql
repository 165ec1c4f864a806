-- put_off_departed: look for these workers' jobs again later: one of them could not be ended.
-- index: departed_pkey
-- locks: those rows
-- run by: worker upkeep, take
update pgqueue.departed set again_at = coalesce(%(now)s::timestamptz, now()) + %(pause)s::interval
where worker_id = any(%(workers)s::uuid[])
