-- insight/standing_running: how many jobs of each queue the live workers ran at their last heartbeats.
-- index: jobs_pkey, job_history_id, dead_jobs_pkey
-- locks: none
-- run by: Insight.queues, where the table of jobs is large
-- rights: monitor
-- why: running jobs are in no index. A job that has ended since then counts, too: its slot has the next one
select job.queue, count(*)
from pgqueue.workers as worker
cross join unnest(worker.running) as said (id)
cross join lateral (select queue from pgqueue.all_jobs where all_jobs.id = said.id limit 1) as job
where worker.lease_until > coalesce(%(now)s::timestamptz, now())
group by job.queue
