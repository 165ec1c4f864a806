-- pipeline/lake_checksum: count a day's rows, by table, with a checksum of every column, and a sum of the history's versions.
-- index: none
-- locks: none
-- run by: pipeline verify, prune
-- why: the sum of 60 bits of each row's MD5 is the same in any order; pgqueue.spark.lake.checksum writes a row as the same
--      text, and both leave meta out where it is null: rows from before revision 0004 keep their sum. The whole partition of
--      the day is read. lake_versions.sql has the sum of versions
with ended as (
    select 'history' as source, hash_record_extended(row(xmin, ctid), 0) as version, id, queue, task, outcome,
           null::text as reason, priority, run_at, created_at, started_at, finished_at as ended_at, worker_id, attempts,
           max_attempts, collisions, unique_key, args::text, errors, result, ended_in, meta
    from pgqueue.job_history
    where finished_at >= %(day)s::date::timestamp at time zone 'UTC'
      and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in >= %(since)s::bigint and ended_in < %(below)s::bigint
    union all
    select 'dead', 0, id, queue, task, 'dead', reason, priority, run_at, created_at, started_at,
           died_at, worker_id, attempts, max_attempts, collisions, unique_key, args::text, errors, null, ended_in, meta
    from pgqueue.dead_jobs
    where died_at >= %(day)s::date::timestamp at time zone 'UTC'
      and died_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in < %(below)s::bigint
),
spelled as (
    select source, version, concat_ws(
        e'\x1f', id, queue, task, outcome, coalesce(reason, e'\x1e'), priority,
        (extract(epoch from run_at) * 1000000)::bigint, (extract(epoch from created_at) * 1000000)::bigint,
        coalesce((extract(epoch from started_at) * 1000000)::bigint::text, e'\x1e'),
        (extract(epoch from ended_at) * 1000000)::bigint, coalesce(worker_id::text, e'\x1e'), attempts, max_attempts,
        collisions, coalesce(unique_key, e'\x1e'), args, coalesce(errors::text, e'\x1e'), coalesce(result::text, e'\x1e'),
        ended_in, meta::text) as words
    from ended
)
select source, count(*), sum(('x' || substr(md5(convert_to(words, 'UTF8')), 1, 15))::bit(60)::bigint)::text,
       sum(version)::text
from spelled
group by source
