-- jobs/expired: some jobs that were to be started by now and that no worker has, locked; and by when they were.
-- index: jobs_expires_at
-- locks: the returned rows; rows that others hold locked are skipped
-- run by: worker upkeep
-- why: a job that a worker has claimed is ended by that worker, which looks before it starts the attempt
select id, status = 'blocked', pgqueue.as_datetime(expires_at)::text
from pgqueue.jobs
where expires_at <= coalesce(%(now)s::timestamptz, now()) and status <> 'running' and id <> all(%(but)s::bigint[])
order by expires_at
limit %(limit)s::integer
for update skip locked
