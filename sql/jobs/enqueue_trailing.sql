-- jobs/enqueue_trailing: add one job unless a live job holds its unique key: at once, or at the end of the period for which the key is held; hold it for another period from then on.
-- index: jobs_unique_key, unique_holds_pkey, queues_pkey
-- locks: the key's row in unique_holds; as enqueue_unique
-- run by: Task.enqueue with Throttle(trailing=True)
-- rights: producer --also unique
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now, nextval('pgqueue.jobs_id_seq') as id
),
held as (
    insert into pgqueue.unique_holds as hold (unique_key, job_id, held_until)
    select %(unique_key)s::text, clock.id, clock.now + %(period)s::interval
    from clock
    left join pgqueue.queues as setting on setting.name = %(queue)s::text
    where setting.drained_at is null and (setting.backlog is null or %(room)s::boolean) and not exists (select from pgqueue.jobs where unique_key = %(unique_key)s::text)
    on conflict (unique_key) do update
    set job_id = excluded.job_id,
        held_until = greatest(hold.held_until, excluded.held_until - %(period)s::interval) + %(period)s::interval
    returning hold.job_id, hold.held_until - %(period)s::interval as run_at
),
due as (
    select held.job_id, clock.now, held.run_at from held, clock
),
added as (
    insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts,
                              unique_key, unique_until_started, meta, expires_at, lane, in_lane, cost)
    select due.job_id, %(queue)s::text, %(task)s::text, %(args)s::json,
           coalesce(%(priority)s::smallint, (select priority from pgqueue.queues where name = %(queue)s::text), 0),
           case when due.run_at > due.now then 'scheduled' when %(lane)s::text is null then 'ready' else 'blocked' end, due.run_at,
           coalesce(%(max_attempts)s::smallint, (select max_attempts from pgqueue.queues where name = %(queue)s::text), 25),
           %(unique_key)s::text, %(unique_until_started)s::boolean, %(meta)s::jsonb,
           coalesce(%(expires_at)s::timestamptz, due.run_at + %(expires_in)s::interval),
           %(lane)s::text, case when %(lane)s::text is not null and due.run_at <= due.now then true end, %(cost)s::integer
    from due
    on conflict (unique_key) where unique_key is not null do nothing
    returning id
)
select held.job_id, added.id is not null
from held left join added on added.id = held.job_id
