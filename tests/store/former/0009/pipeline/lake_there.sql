-- pipeline/lake_there: the days that have rows: whether the history has some, and how many final rows are not in the lake.
-- index: none
-- locks: none
-- run by: pipeline export, prune, status
-- why: each day is looked up in its own partition; for a day in the lake only rows of later transactions are counted,
--      which the block range index finds
with known as (
    select * from unnest(%(days)s::date[], %(belows)s::bigint[]) as known (day, below)
),
named as (
    select to_date(right(child.relname, 8), 'YYYYMMDD') as day
    from pg_inherits join pg_class as child on child.oid = inhrelid
    where inhparent = 'pgqueue.job_history'::regclass and child.relname ~ '^job_history_\d{8}$'
    union
    select (finished_at at time zone 'UTC')::date from pgqueue.job_history_default
    union
    select (died_at at time zone 'UTC')::date from pgqueue.dead_jobs
),
bounded as (
    select named.day, named.day::timestamp at time zone 'UTC' as first,
           (named.day + 1)::timestamp at time zone 'UTC' as last, coalesce(known.below, 0) as since
    from named left join known on known.day = named.day
)
select day,
       exists (select from pgqueue.job_history where finished_at >= first and finished_at < last),
       (select count(*) from pgqueue.job_history
        where finished_at >= first and finished_at < last and ended_in >= since and ended_in < %(below)s::bigint)
       + (select count(*) from pgqueue.dead_jobs
          where died_at >= first and died_at < last and ended_in >= since and ended_in < %(below)s::bigint)
from bounded
order by day
