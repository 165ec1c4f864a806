-- why: what decides whether a job runs: its state, its queue, its worker, what it waits for, and the workers that are alive.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id, jobs_ready, waits_job_id
-- locks: none
-- run by: PgQueue.why, and PgQueue.result when its time is over
-- why: the jobs ahead are counted up to a number, so that a long line is not read to its end
select job.state, job.queue, job.task, job.attempts, job.max_attempts,
       extract(epoch from pgqueue.as_datetime(job.run_at) - clock.now)::float8 as due_in,
       extract(epoch from clock.now - coalesce(job.ended_at, job.started_at))::float8 as since,
       coalesce(live.cancel_requested, false) as cancel_requested,
       extract(epoch from clock.now - live.unknown_since)::float8 as unknown_for,
       exists (select from pgqueue.queues where name = job.queue and paused_at is not null) as paused,
       worker.host, worker.pid, extract(epoch from worker.lease_until - clock.now)::float8 as lease_left,
       alive.workers, alive.serving, alive.slots, alive.knowing,
       case when job.state = 'ready' then (
           select count(*) from (
               select from pgqueue.jobs as other
               where other.queue = job.queue and other.status = 'ready'
                 and (-other.priority, other.run_at, other.id) < (-job.priority, job.run_at, job.id)
               limit %(most_ahead)s::integer) as ahead)
       end as ahead,
       alive.blocked, stuck.host, stuck.pid,
       extract(epoch from clock.now - pgqueue.as_datetime(stuck.blocked_since))::float8 as blocked_for,
       stuck.blocked_task, stuck.blocked_job, stuck.blocked_where,
       case when live.in_lane then array(
           select 'limit:' || split_part(key, ' ', 1) from string_to_table(live.lane, E'\n') as key limit 6)
            when job.state = 'blocked' then array(
           select waits_for from pgqueue.waits where waits.job_id = job.id order by waits_for limit 6)
       end as waits_for,
       case when job.state = 'blocked' then array(
           select extract(epoch from pgqueue.as_datetime(waits.until) - clock.now)::float8
           from pgqueue.waits where waits.job_id = job.id order by waits_for limit 6)
       end as waits_until,
       extract(epoch from pgqueue.as_datetime(live.expires_at) - clock.now)::float8 as expires_in, job.reason
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
cross join pgqueue.all_jobs as job
left join pgqueue.jobs as live on live.id = job.id
left join pgqueue.workers as worker on worker.id = job.worker_id and job.state = 'running'
cross join lateral (
    select count(*) as workers,
           count(*) filter (where of.draining is not true and pgqueue.serves(of.queues, job.queue)) as serving,
           coalesce(sum(coalesce(of.slots, of.concurrency))
                    filter (where of.draining is not true and pgqueue.serves(of.queues, job.queue)), 0)::bigint as slots,
           count(*) filter (where of.draining is not true and pgqueue.serves(of.queues, job.queue)
                              and (of.tasks is null or job.task = any(of.tasks))) as knowing,
           count(*) filter (where of.draining is not true and pgqueue.serves(of.queues, job.queue)
                              and of.blocked_since is not null) as blocked
    from pgqueue.workers as of where of.lease_until > clock.now) as alive
left join lateral (
    select * from pgqueue.workers as of
    where of.blocked_since is not null and of.lease_until > clock.now
      and case when job.state = 'running' then of.id = job.worker_id
               else pgqueue.serves(of.queues, job.queue) end
    order by of.blocked_since limit 1) as stuck on true
where job.id = %(id)s::bigint
