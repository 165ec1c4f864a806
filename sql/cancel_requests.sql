-- cancel_requests: which of a worker's running jobs somebody asked to cancel.
-- index: jobs_running
-- locks: none
-- run by: every beat
select id from pgqueue.jobs
where status = 'running' and worker_id = %(worker)s::uuid and cancel_requested
