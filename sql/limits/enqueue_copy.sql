-- limits/enqueue_copy: add many jobs without unique keys to their lanes.
-- index: none
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
-- why: a COPY of its own, so that the rows of jobs without a lane are as short as before
copy pgqueue.jobs (id, status, {new}, {limited}, in_lane) from stdin with (encoding 'utf8')
