-- disown: return, unspent, what a worker holds without knowing it: claims whose answer was lost with a connection.
-- index: jobs_running
-- locks: the returned rows
-- run by: every beat
update pgqueue.jobs
set status = 'ready', attempts = attempts - 1, worker_id = null, claimed_at = null
where status = 'running' and worker_id = %(worker)s::uuid and id <> all(%(known)s::bigint[])
returning id
