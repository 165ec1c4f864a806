-- jobs/enqueue_copy: add many jobs without unique keys.
-- index: none
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
copy pgqueue.jobs (id, queue, task, args, priority, status, run_at, max_attempts, meta, expires_at) from stdin with (encoding 'utf8')
