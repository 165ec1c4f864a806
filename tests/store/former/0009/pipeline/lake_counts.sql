-- pipeline/lake_counts: count a day's rows, by table and queue, with the highest transaction.
-- index: none
-- locks: none
-- run by: pipeline export
-- why: only the rows of days that Spark exports are counted before: their files are checked against it
select source, queue, count(*), max(ended_in)
from (
    select 'history' as source, queue, ended_in
    from pgqueue.job_history
    where finished_at >= %(day)s::date::timestamp at time zone 'UTC'
      and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in >= %(since)s::bigint and ended_in < %(below)s::bigint
    union all
    select 'dead', queue, ended_in
    from pgqueue.dead_jobs
    where died_at >= %(day)s::date::timestamp at time zone 'UTC'
      and died_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in >= %(since)s::bigint and ended_in < %(below)s::bigint
) as ended
group by source, queue
order by source, queue
