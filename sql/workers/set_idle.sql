-- workers/set_idle: say whether a worker wants to be notified of new jobs.
-- index: workers_pkey
-- locks: the worker's own row
-- run by: worker fetcher
update pgqueue.workers set idle = %(idle)s::boolean
where id = %(worker)s::uuid
