-- jobs/reschedule: give the waiting job that holds the key the new enqueue's time, and nothing else.
-- index: jobs_unique_key, unique_holds_pkey
-- locks: with a period, the key's row in unique_holds; then that job's row
-- run by: Task.enqueue with Unique(collision="reschedule")
-- rights: producer --also unique
-- why: held: as count_collision
with held as materialized (
    select from pgqueue.unique_holds where %(period)s::interval is not null and unique_key = %(unique_key)s::text
    for no key update
)
update pgqueue.jobs as job
set run_at = due.run_at, collisions = collisions + 1,
    status = case when job.status = 'blocked' and job.in_lane is not true then 'blocked'
                  when due.run_at > due.now then 'scheduled' else 'ready' end
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
where unique_key = %(unique_key)s::text and status <> 'running' and (select count(*) from held) >= 0
returning id
