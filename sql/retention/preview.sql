-- retention/preview: what the next tidying removes if these lengths hold: days of the history that are dropped whole, ended jobs of days that stay, dead jobs.
-- index: none: reads the dead jobs, and the days of the history that are cleared
-- locks: none
-- run by: pgqueue retention set
-- rights: monitor
-- why: days are read only where a queue keeps them for longer than this length
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
kept as (  -- as they are to be
    select null::text as queue, case when %(queue)s::text is null then coalesce(%(history)s::interval, history) else history end as history,
           case when %(queue)s::text is null then coalesce(%(dead)s::interval, dead) else dead end as dead
    from pgqueue.retention
    union all
    select name, case when name = %(queue)s::text then coalesce(%(history)s::interval, keep_history) else keep_history end,
           case when name = %(queue)s::text then coalesce(%(dead)s::interval, keep_dead) else keep_dead end
    from (select name, keep_history, keep_dead from pgqueue.queues
          union all
          select %(queue)s::text, null, null where %(queue)s::text is not null and not exists (select from pgqueue.queues where name = %(queue)s::text)) as known
),
due as (
    select queue, case when history < '100000 days' then ((now - history) at time zone 'UTC')::date else '-infinity' end as first_kept
    from kept cross join clock where history > '0' or queue is null
),
day as (
    select to_date(right(pg_class.relname, 8), 'YYYYMMDD') as day, coalesce(said.n_live_tup, 0) as rows, pg_total_relation_size(inhrelid) as bytes
    from pg_inherits join pg_class on pg_class.oid = inhrelid left join pg_stat_all_tables as said on said.relid = inhrelid
    where inhparent = 'pgqueue.job_history'::regclass and pg_class.relname ~ '^job_history_\d{8}$'
),
dropped as (
    select count(*) as days, coalesce(sum(rows), 0)::bigint as rows, coalesce(sum(bytes), 0)::bigint as bytes
    from day where day < (select min(first_kept) from due)
      and (not exists (select from pgqueue.lake_days) or exists (select from pgqueue.lake_days as verified where verified.day = day.day))
)
select 'days of the history', days, rows, bytes from dropped
union all
select 'ended jobs', count(*), count(*), null
from pgqueue.job_history as ended left join due as own on own.queue = ended.queue
where (select min(first_kept) from due) < (select max(first_kept) from due)
  and ended.finished_at >= (select min(first_kept) from due)::timestamp at time zone 'UTC'
  and ended.finished_at < coalesce(own.first_kept, (select first_kept from due where queue is null))::timestamp at time zone 'UTC'
  and (ended.finished_at at time zone 'UTC')::date in (select day from day)  -- those of the default partition stay
  and not exists (select from pgqueue.lake_days)
union all
select 'dead jobs', count(*), count(*), null
from pgqueue.dead_jobs as dead
where dead.died_at < (select now from clock) - (
    select least(coalesce((select kept.dead from kept where kept.queue = dead.queue), (select kept.dead from kept where kept.queue is null), '100000 days'), '100000 days'))
