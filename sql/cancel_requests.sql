-- cancel_requests: which of a worker's jobs were asked to cancel.
-- index: jobs_pkey
-- locks: none
-- run by: every beat of a worker that has jobs in hand
select id from pgqueue.jobs
where id = any(%(known)s::bigint[]) and worker_id = %(worker)s::uuid and cancel_requested
