-- pipeline/lake_gather: give a day's rows a partition of their own, where they lie in the default one.
-- index: none
-- locks: the history's table lock, for 200 ms at most
-- run by: pipeline prune
select pgqueue.gather_history_day(%(day)s::date)
