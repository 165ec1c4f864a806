-- days: make the history partitions of past days.
-- index: none
-- locks: the history's schema lock, when one is missing
-- run by: pgqueue pipeline generate
select pgqueue.ensure_history_days(%(first)s::date, %(last)s::date)
