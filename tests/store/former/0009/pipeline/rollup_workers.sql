-- pipeline/rollup_workers: write a day's workers into the roll-up.
-- index: none
-- locks: none beyond the new rows
-- run by: pgqueue pipeline rollup
copy pgqueue.rollup_workers (
    day, hour, worker_id, host, concurrency, alive_seconds, busy_seconds, utilisation
) from stdin with (format csv, encoding 'utf8')
