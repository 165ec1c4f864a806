-- pipeline/rollup_tenants: write a day's tenants into the roll-up.
-- index: none
-- locks: none beyond the new rows
-- run by: pgqueue pipeline rollup
copy pgqueue.rollup_tenants (
    day, hour, queue, tenant, jobs, run_seconds, wait_seconds, wait_p90, cost
) from stdin with (format csv, encoding 'utf8')
