-- jobs/replace: give the waiting job that holds the key the new enqueue's contents.
-- index: jobs_unique_key, unique_holds_pkey, queues_pkey
-- locks: with a period, the key's row in unique_holds; then that job's row
-- run by: Task.enqueue with Unique(collision="replace"), Debounce or Throttle(trailing=True)
-- rights: producer --also unique
-- why: trailing: the job runs when it would have run, and stays ready even if this transaction began before it was added. most: it runs at most that
--      long after its first enqueue, and a transaction that began earlier does not bring it forward. held: as count_collision
with held as materialized (
    select from pgqueue.unique_holds where %(period)s::interval is not null and unique_key = %(unique_key)s::text
    for no key update
)
update pgqueue.jobs as job
set queue = %(queue)s::text, task = %(task)s::text, args = %(args)s::json, priority = coalesce(%(priority)s::smallint, (select priority from pgqueue.queues where name = %(queue)s::text), 0),
    max_attempts = coalesce(%(max_attempts)s::smallint, (select max_attempts from pgqueue.queues where name = %(queue)s::text), 25),
    ({sent}) = row ({sent: %(NAME)s::TYPE}), unique_until_started = %(unique_until_started)s::boolean, collisions = collisions + 1,
    lane = coalesce(%(lane)s::text, job.lane), cost = case when %(lane)s::text is null then job.cost else %(cost)s::integer end,
    (run_at, status, expires_at) = (
        select at.run_at, case when job.status = 'blocked' and job.in_lane is not true then 'blocked'
                               when %(trailing)s::boolean then job.status
                               when at.run_at > due.now then 'scheduled' else 'ready' end,
               coalesce(%(expires_at)s::timestamptz, at.run_at + %(expires_in)s::interval)
        from (select case when %(trailing)s::boolean then job.run_at
                          when %(most)s::interval is null then due.run_at
                          else least(greatest(due.run_at, job.run_at), job.created_at + %(most)s::interval)
                     end as run_at) as at)
from (select clock.now, coalesce(%(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock) due
where unique_key = %(unique_key)s::text and status <> 'running' and (select count(*) from held) >= 0
returning id
