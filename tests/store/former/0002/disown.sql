-- disown: return, unspent, what a worker holds without knowing it: claims whose answer was lost with a connection.
-- index: none (reads the jobs from end to end: running ones are in no index)
-- locks: the returned rows
-- run by: beats after a lost connection, a worker that stops with something in hand, a take that failed
update pgqueue.jobs
set status = 'ready', attempts = attempts - 1, worker_id = null, claimed_at = null
where status = 'running' and worker_id = %(worker)s::uuid and id <> all(%(known)s::bigint[])
returning id
