-- bulk/lock: lock jobs that are as they were when they were found, and say which of them run; missing: changed, or locked by others.
-- index: jobs_pkey
-- locks: those rows; rows that others hold locked are skipped
-- run by: QueueControl.jobs
-- why: the version of a row says whether it was changed, so the filter is asked once; ids are given in order, and
--      width_bucket finds what belongs to each by halving
select id, status = 'running'
from pgqueue.jobs
where id = any(%(ids)s::bigint[]) and xmin::text = (%(versions)s::text[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]
order by id
for update skip locked
