-- limits/drop_rates: delete states of rates that mean nothing any more; how many.
-- index: rates_pkey (reads the table)
-- locks: the deleted rows; locked ones are skipped
-- run by: worker upkeep
with gone as (
    delete from pgqueue.rates
    where key = any(array(
        select key from pgqueue.rates
        where tat < (extract(epoch from coalesce(%(now)s::timestamptz, now()) - interval '1 minute') * 1000000)::bigint
        limit %(limit)s::integer for update skip locked))
    returning key
)
select count(*) from gone
