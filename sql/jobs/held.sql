-- jobs/held: why dead jobs stay dead: the live job that has the unique key of each.
-- index: dead_jobs_pkey, jobs_unique_key
-- locks: none
-- run by: PgQueue.retry, QueueControl.dead
-- rights: reader
select dead.id, twin.id, dead.unique_key
from pgqueue.dead_jobs as dead
left join pgqueue.jobs as twin on twin.unique_key = dead.unique_key
where dead.id = any(%(ids)s::bigint[])
order by dead.id
