-- jobs/run_at: give a job that waits for its time, or for a worker, another time.
-- index: jobs_pkey
-- locks: that job's row
-- run by: QueueControl.reschedule
-- why: a time that has come makes the job ready, as in run_now. Blocked jobs, also those that wait in a lane, are left alone
update pgqueue.jobs as job
set run_at = %(at)s::timestamptz,
    status = case when %(at)s::timestamptz > clock.now then 'scheduled' else 'ready' end
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
where job.id = %(id)s::bigint and job.status in ('scheduled', 'ready')
returning job.id
