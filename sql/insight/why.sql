-- insight/why: what decides whether a job runs: its state, its queue, its worker, what it waits for, and the workers that are alive.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id, jobs_ready, waits_job_id, limits_pkey
-- locks: none
-- run by: PgQueue.why, and PgQueue.result when its time is over
-- rights: reader
-- why: the jobs ahead are counted up to a number, so that a long line is not read to its end. A worker stops from its next
--      heartbeat on without looked_at. Of workers that know the task, each is blocked, or looks for no jobs, or has no free slot
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
job as (
    select * from pgqueue.all_jobs where id = %(id)s::bigint
),
near as (
    select of.*, coalesce(of.slots, of.concurrency) as room, of.quiet is true as is_quiet,
           coalesce(of.ask_end is not null and of.answer is null or of.look_within is not null and of.looked_at is null, false) as stops,
           pgqueue.serves(of.queues, job.queue) as serves, of.tasks is null or job.task = any(of.tasks) as has_task,
           extract(epoch from clock.now - of.looked_at) > of.look_within as late
    from clock cross join job cross join pgqueue.workers as of where of.lease_until > clock.now
),
able as (
    select near.*, serves and not is_quiet and not stops as stays, serves and not is_quiet and not stops and has_task as knows,
           blocked_since is null and late is not true and coalesce(taken, cardinality(running)) >= room as busy
    from near
)
select job.state, job.queue, job.task, pgqueue.as_datetime(clock.now), job.attempts, job.max_attempts,
       extract(epoch from pgqueue.as_datetime(job.run_at) - clock.now)::float8 as due_in,
       extract(epoch from clock.now - pgqueue.as_datetime(coalesce(job.ended_at, job.started_at)))::float8 as since,
       coalesce(live.cancel_requested, false) as cancel_requested,
       (select extract(epoch from clock.now - pgqueue.as_datetime(since))::float8 from pgqueue.unknown_tasks as unknown
        where unknown.queue = job.queue and unknown.task = job.task and (job.state = 'ready' or live.in_lane)) as unknown_for,
       extract(epoch from pgqueue.as_datetime(live.expires_at) - clock.now)::float8 as expires_in,
       job.reason, job.errors -> -1 ->> 'type' as last_error, job.errors -> -1 ->> 'message' as last_message,
       coalesce(live.flags & 16 > 0, false) as suspect,
       (select count(*) from pg_catalog.jsonb_array_elements(case when pg_catalog.jsonb_typeof(job.errors) = 'array' then job.errors end) as error
        where error -> 'crashed' = 'true') as crashes,
       pause.paused_at is not null as paused, extract(epoch from clock.now - pause.paused_at)::float8 as paused_for,
       pause.paused_by, pause.paused_why,
       worker.host, worker.pid, extract(epoch from worker.lease_until - clock.now)::float8 as lease_left,
       extract(epoch from clock.now - worker.heard_at)::float8 as heard_for,
       coalesce(job.id = any(worker.overrunning), false) as overruns,
       alive.workers, alive.serving, alive.slots, alive.knowing, alive.quiet, alive.stopping,
       alive.blocked, alive.not_looking, alive.busy, alive.running,
       stuck.host, stuck.pid, extract(epoch from clock.now - pgqueue.as_datetime(stuck.blocked_since))::float8 as blocked_for,
       stuck.blocked_task, stuck.blocked_job, stuck.blocked_where,
       case when job.state = 'ready' then (
           select count(*) from (
               select from pgqueue.jobs as other
               where other.queue = job.queue and other.status = 'ready'
                 and (-other.priority, other.run_at, other.id) < (-job.priority, job.run_at, job.id)
               limit %(most_ahead)s::integer) as ahead)
       end as ahead,
       case when job.state = 'blocked' and live.in_lane is not true then array(
           select waits_for from pgqueue.waits where waits.job_id = job.id order by waits_for limit 6)
       end as waits_for,
       case when job.state = 'blocked' and live.in_lane is not true then array(
           select extract(epoch from pgqueue.as_datetime(waits.until) - clock.now)::float8
           from pgqueue.waits where waits.job_id = job.id order by waits_for limit 6)
       end as waits_until,
       coalesce(live.in_lane, false) as in_lane,
       job.state = 'ready' and exists (select from pgqueue.limits where name = 'queue:' || job.queue) as limited_queue,
       exists (select from pg_catalog.pg_class where oid = 'pgqueue.jobs'::regclass and relrowsecurity
               and not exists (select from pg_catalog.pg_policy where polrelid = 'pgqueue.jobs'::regclass)) as hidden
from clock cross join job
left join pgqueue.jobs as live on live.id = job.id
left join pgqueue.queues as pause on pause.name = job.queue
left join pgqueue.workers as worker on worker.id = job.worker_id and job.state = 'running'
cross join (
    select count(*) as workers,
           count(*) filter (where stays) as serving,
           coalesce(sum(room) filter (where stays), 0)::bigint as slots,
           count(*) filter (where knows) as knowing,
           count(*) filter (where serves and is_quiet) as quiet,
           count(*) filter (where serves and stops and not is_quiet) as stopping,
           count(*) filter (where knows and blocked_since is not null) as blocked,
           count(*) filter (where knows and blocked_since is null and late) as not_looking,
           count(*) filter (where knows and busy) as busy,
           (string_to_array(string_agg(array_to_string(running[1:6], ','), ',' order by id) filter (where knows and busy), ','))[1:6]::bigint[]
               as running
    from able) as alive
left join lateral (
    select * from able
    where blocked_since is not null and case when job.state = 'running' then id = job.worker_id else knows end
    order by blocked_since limit 1) as stuck on true
