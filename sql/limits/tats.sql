-- limits/tats: the states of the keys of one rate.
-- index: none: a row for each key that had a start
-- locks: none
-- run by: Insight.limits, Insight.limit
select key, tat from pgqueue.rates where split_part(key, ' ', 1) = %(name)s::text order by key
