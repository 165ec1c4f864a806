-- limits/arrivals: the states of rates by key; and what time the database has, in microseconds since 1970.
-- index: rates_pkey
-- locks: none; the locked limits guard these rows
-- run by: a claim from lanes, in the same transaction
-- rights: monitor
select clock.now, rate.key, rate.tat
from (select (extract(epoch from coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())) * 1000000)::bigint as now) as clock
left join pgqueue.rates as rate on rate.key = any(%(keys)s::text[])
