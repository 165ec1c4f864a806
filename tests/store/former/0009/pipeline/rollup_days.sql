-- pipeline/rollup_days: write a day as a whole into the roll-up.
-- index: none
-- locks: none beyond the new rows
-- run by: pgqueue pipeline rollup
copy pgqueue.rollup_days (
    day, queue, task, jobs, succeeded, cancelled, dead, attempts, retries, run_seconds, wait_seconds, busy_seconds,
    wait_p50, wait_p90, wait_p99, run_p50, run_p90, run_p99, wait_sketch, run_sketch,
    slo_good, slo_total, slo_objective, slo_attained, slo_burn
) from stdin with (format csv, encoding 'utf8')
