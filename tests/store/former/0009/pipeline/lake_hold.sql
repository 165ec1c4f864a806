-- pipeline/lake_hold: lock a day of the history against writes until the transaction ends; false if another transaction uses it.
-- index: none
-- locks: the day's partition, against writers
-- run by: pipeline prune
select pgqueue.hold_history_day(%(day)s::date)
