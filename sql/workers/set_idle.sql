-- workers/set_idle: say whether a worker wants to be notified of new jobs, and how many of its slots are taken.
-- index: workers_pkey
-- locks: the worker's own row
-- run by: worker fetcher, a take that waits
-- rights: worker
-- why: it does not wait for the disk: if a crash undoes it, the next poll of a worker sets it right
update pgqueue.workers set idle = %(idle)s::boolean, taken = %(taken)s::integer
where id = %(worker)s::uuid and set_config('synchronous_commit', 'off', true) is not null
