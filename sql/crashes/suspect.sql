-- crashes/suspect: mark jobs that a lost worker had claimed, so that workers note when they start another attempt of them.
-- index: jobs_pkey
-- locks: those rows; the caller has locked them
-- run by: worker upkeep, take
update pgqueue.jobs set flags = coalesce(flags, 0::smallint) | 16::smallint
where id = any(%(ids)s::bigint[])
