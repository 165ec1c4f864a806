-- jobs/enqueue_for_period: add one job unless its unique key is held, by a live job or for a period; hold it for the new period.
-- index: jobs_unique_key, unique_holds_pkey, queues_pkey
-- locks: the key's row in unique_holds; as enqueue_unique
-- run by: Task.enqueue with Unique(period=...) or Throttle(trailing=True)
-- rights: producer --also unique
-- why: trailing: a period that lasts does not keep the job out. It runs at the end of the period, and the key is held for another one from then on
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now, nextval('pgqueue.jobs_id_seq') as id
),
held as (
    insert into pgqueue.unique_holds as hold (unique_key, job_id, held_until)
    select %(unique_key)s::text, clock.id, clock.now + %(period)s::interval
    from clock
    left join pgqueue.queues as setting on setting.name = %(queue)s::text
    where setting.closed_at is null and (setting.backlog is null or %(room)s::boolean) and not exists (select from pgqueue.jobs where unique_key = %(unique_key)s::text)
    on conflict (unique_key) do update
    set job_id = excluded.job_id,
        held_until = case when %(trailing)s::boolean
                          then greatest(hold.held_until, excluded.held_until - %(period)s::interval) + %(period)s::interval
                          else excluded.held_until end
    where %(trailing)s::boolean or hold.held_until <= excluded.held_until - %(period)s::interval
    returning hold.job_id, case when %(trailing)s::boolean then hold.held_until - %(period)s::interval end as run_at
),
due as (
    select held.job_id, clock.now,
           coalesce(held.run_at, %(run_at)s::timestamptz, clock.now + %(delay)s::interval, clock.now) as run_at
    from held, clock
),
added as (
    insert into pgqueue.jobs (id, {given}, {limited}, {key}, priority, status, run_at, max_attempts, expires_at, in_lane)
    select due.job_id, {given: %(NAME)s::TYPE}, {limited: %(NAME)s::TYPE}, {key: %(NAME)s::TYPE},
           coalesce(%(priority)s::smallint, (select priority from pgqueue.queues where name = %(queue)s::text), 0),
           case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
           coalesce(%(max_attempts)s::smallint, (select max_attempts from pgqueue.queues where name = %(queue)s::text), 25),
           coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
           case when %(lane)s::text is not null and due.run_at <= due.now then true end
    from due
    on conflict (unique_key) where unique_key is not null do nothing
    returning id
)
select held.job_id, added.id is not null
from held left join added on added.id = held.job_id
