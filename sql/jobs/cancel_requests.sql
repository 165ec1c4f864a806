-- jobs/cancel_requests: which of a worker's jobs were asked to cancel.
-- index: jobs_pkey
-- locks: none
-- run by: workers and takes that hold jobs, every second
-- rights: monitor
select id from pgqueue.jobs
where id = any(%(known)s::bigint[]) and worker_id = %(worker)s::uuid and cancel_requested
