-- settings: set up a transaction that makes history: times in UTC, memory for a day's sort, no wait for the disk.
-- index: none
-- locks: none
-- run by: pgqueue pipeline generate
select set_config('TimeZone', 'UTC', true), set_config('work_mem', '64MB', true), set_config('jit', 'off', true),
       set_config('synchronous_commit', 'off', true)
