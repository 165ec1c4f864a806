-- worker_problems: the live workers whose event loop is blocked, or that have given up functions which did not return.
-- index: none: a row for each worker
-- locks: none
-- run by: health checks, `pgqueue queues list`
select worker.host, worker.pid,
       extract(epoch from clock.now - pgqueue.as_datetime(worker.blocked_since))::float8,
       coalesce(worker.blocked_task, 'unknown'), worker.blocked_job, coalesce(worker.blocked_where, 'unknown'),
       coalesce(worker.not_returned, 0)
from pgqueue.workers as worker, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
where worker.lease_until > clock.now and (worker.blocked_since is not null or worker.not_returned > 0)
order by worker.blocked_since, worker.host, worker.pid
