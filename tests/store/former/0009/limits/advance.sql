-- limits/advance: store the new states of rates; what time the database has, in microseconds since 1970.
-- index: rates_pkey
-- locks: those rows, which the locked limits guard
-- run by: a claim from lanes, in the same transaction
with advanced as (
    insert into pgqueue.rates as rate (key, tat)
    select key, tat from unnest(%(keys)s::text[], %(tats)s::bigint[]) as new (key, tat)
    on conflict (key) do update set tat = excluded.tat
)
select (extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp())) * 1000000)::bigint
