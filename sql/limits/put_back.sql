-- limits/put_back: put jobs that this transaction has claimed back into their lanes, as if it had not.
-- index: jobs_pkey
-- locks: those rows, which this transaction has locked
-- run by: a claim from lanes, of jobs whose start costs more than their rates have, or whose task the worker does not run
update pgqueue.jobs
set status = 'ready', attempts = attempts - 1, worker_id = null, claimed_at = null
where id = any(%(ids)s::bigint[]) and status = 'running'
