-- why: what decides whether a job runs: its state, its queue, its worker, and the workers that are alive.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id, jobs_ready
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
       end as ahead
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
cross join pgqueue.all_jobs as job
left join pgqueue.jobs as live on live.id = job.id
left join pgqueue.workers as worker on worker.id = job.worker_id and job.state = 'running'
cross join lateral (
    select count(*) as workers,
           count(*) filter (where of.queues is null or job.queue = any(of.queues)) as serving,
           coalesce(sum(of.concurrency) filter (where of.queues is null or job.queue = any(of.queues)), 0)::bigint as slots,
           count(*) filter (where (of.queues is null or job.queue = any(of.queues))
                              and (of.tasks is null or job.task = any(of.tasks))) as knowing
    from pgqueue.workers as of where of.lease_until > clock.now) as alive
where job.id = %(id)s::bigint
