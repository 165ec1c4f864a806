-- jobs/purge_dead: forget dead jobs.
-- index: dead_jobs_pkey
-- locks: the forgotten rows, in order of their ids, as revive does: so the two never wait for each other in a circle
-- run by: QueueControl.dead
with doomed as materialized (
    select id from pgqueue.dead_jobs where id = any(%(ids)s::bigint[]) order by id for update
)
delete from pgqueue.dead_jobs
where id in (select id from doomed)
returning id
