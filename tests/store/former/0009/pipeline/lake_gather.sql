-- pipeline/lake_gather: move a day's rows from the default partition to one of their own.
-- index: none
-- locks: the history's table lock, for 200 ms at most
-- run by: pipeline prune
select pgqueue.gather_history_day(%(day)s::date)
