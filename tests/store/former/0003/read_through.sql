-- read_through: let this transaction read the jobs from end to end: what a lost worker held is in no index.
-- index: none
-- locks: none
-- run by: worker upkeep, beats after a lost connection
select set_config('enable_seqscan', 'on', true)
