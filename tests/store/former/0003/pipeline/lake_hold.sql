-- pipeline/lake_hold: let nobody change a day of the history before the transaction ends; false: somebody is at it.
-- index: none
-- locks: the day's partition, against writers
-- run by: pipeline prune
select pgqueue.hold_history_day(%(day)s::date)
