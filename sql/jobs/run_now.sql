-- jobs/run_now: move a scheduled job into its line at once.
-- index: jobs_pkey
-- locks: that job's row
-- run by: PgQueue.retry, QueueControl.run_now
update pgqueue.jobs set status = 'ready', run_at = coalesce(%(now)s::timestamptz, now())
where id = %(id)s::bigint and status = 'scheduled'
returning id
