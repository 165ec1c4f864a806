-- pipeline/lake_drop: drop a day of the history, and record it; false if the table was in use.
-- index: none
-- locks: the history's table lock, for 200 ms at most
-- run by: pipeline prune
-- rights: owner
select pgqueue.drop_history_day(%(day)s::date)
