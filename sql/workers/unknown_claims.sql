-- workers/unknown_claims: what a worker holds without knowing it: claims whose answer was lost with a connection.
-- index: none (reads the jobs from end to end: running ones are in no index)
-- locks: none
-- run by: beats after a lost connection, a worker that stops and still holds jobs, a take that failed
-- rights: monitor
select id, fence, attempts, max_attempts from pgqueue.jobs
where status = 'running' and worker_id = %(worker)s::uuid and id <> all(%(known)s::bigint[])
