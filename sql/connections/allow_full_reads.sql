-- connections/allow_full_reads: allow this transaction to read the jobs from end to end: running jobs are in no index.
-- index: none
-- locks: none
-- run by: worker upkeep, beats after a lost connection
select set_config('enable_seqscan', 'on', true)
