-- limits/tats: the states of the keys of one rate, as they count now: none reaches further than claims reach by the rate's numbers.
-- index: none: a row for each key that had a start
-- locks: none
-- run by: Insight.limits, Insight.limit
-- rights: monitor
select key, least(tat, (extract(epoch from coalesce(%(now)s::timestamptz, now())) * 1000000)::bigint + %(reach)s::bigint)
from pgqueue.rates where split_part(key, ' ', 1) = %(name)s::text order by key
