-- workers/worker_problems: the live workers whose event loop is blocked, that have given up functions, do not look for jobs or cannot listen.
-- index: none: a row for each worker
-- locks: none
-- run by: health checks, `pgqueue queues list`, `pgqueue metrics`
-- rights: monitor
-- why: a row says when its worker last looked, and within which time it says so again. So other workers find one that does
--      not look, whatever that worker believes. Takes leave it null. A worker listens again after 1 s
select host, pid, blocked_for, blocked_task, blocked_job, blocked_where, not_returned, not_looked, not_listening
from (select worker.host, worker.pid, worker.blocked_since,
             extract(epoch from clock.now - pgqueue.as_datetime(worker.blocked_since))::float8 as blocked_for,
             coalesce(worker.blocked_task, 'unknown') as blocked_task, worker.blocked_job,
             coalesce(worker.blocked_where, 'unknown') as blocked_where, coalesce(worker.not_returned, 0) as not_returned,
             case when extract(epoch from clock.now - pgqueue.as_datetime(worker.looked_at)) > worker.look_within
                  then extract(epoch from clock.now - pgqueue.as_datetime(worker.looked_at))::float8 end as not_looked,
             extract(epoch from clock.now - pgqueue.as_datetime(worker.cannot_listen_since))::float8 as not_listening
      from pgqueue.workers as worker, (select coalesce(%(now)s::timestamptz, now()) as now) as clock
      where worker.lease_until > clock.now) as said
where blocked_since is not null or not_returned > 0 or not_looked is not null or not_listening is not null
order by blocked_since, host, pid
