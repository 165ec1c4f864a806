-- pipeline/rollup_failures: write a day's failures into the roll-up.
-- index: none
-- locks: none beyond the new rows
-- run by: pgqueue pipeline rollup
copy pgqueue.rollup_failures (
    day, hour, queue, task, error_type, reason, failures, jobs, dead, first_at, last_at, sample
) from stdin with (format csv, encoding 'utf8')
