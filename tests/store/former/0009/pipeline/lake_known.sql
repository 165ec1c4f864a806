-- pipeline/lake_known: the days that are verified in a lake.
-- index: none
-- locks: none
-- run by: pipeline verify, prune, status
select day, below, pruned_below, lake from pgqueue.lake_days order by day
