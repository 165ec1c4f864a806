-- jobs/enqueue_copy: add many jobs without unique keys.
-- index: none
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
copy pgqueue.jobs (id, status, {new}) from stdin with (encoding 'utf8')
