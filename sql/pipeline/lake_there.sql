-- pipeline/lake_there: the days that have rows: whether the history has some, and how many final rows are not in the lake.
-- index: none
-- locks: none
-- run by: pipeline export, prune, status
-- why: each day is looked up in its own partition; for a day in the lake only rows of later transactions are counted,
--      which the block range index finds. Dead jobs have no partitions, so all are read, once for all days
with known as (
    select * from unnest(%(days)s::date[], %(belows)s::bigint[]) as known (day, below)
),
dead as (
    select (died_at at time zone 'UTC')::date as day, ended_in from pgqueue.dead_jobs
),
named as (
    select to_date(right(child.relname, 8), 'YYYYMMDD') as day
    from pg_inherits join pg_class as child on child.oid = inhrelid
    where inhparent = 'pgqueue.job_history'::regclass and child.relname ~ '^job_history_\d{8}$'
    union
    select (finished_at at time zone 'UTC')::date from pgqueue.job_history_default
    union
    select day from dead
),
bounded as (
    select named.day, named.day::timestamp at time zone 'UTC' as first,
           (named.day + 1)::timestamp at time zone 'UTC' as last, coalesce(known.below, 0) as since
    from named left join known on known.day = named.day
),
dead_by_day as (
    select day, count(*) as waiting from dead join bounded using (day)
    where ended_in >= since and ended_in < %(below)s::bigint group by day
)
select day,
       exists (select from pgqueue.job_history where finished_at >= first and finished_at < last),
       (select count(*) from pgqueue.job_history
        where finished_at >= first and finished_at < last and ended_in >= since and ended_in < %(below)s::bigint)
       + coalesce(dead_by_day.waiting, 0)
from bounded left join dead_by_day using (day)
order by day
