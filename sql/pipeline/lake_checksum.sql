-- pipeline/lake_checksum: count a day's rows, by table, with a checksum of every column, and a sum of the history's versions.
-- index: none: dead_jobs_ended_in, when the bounds are known to the planner
-- locks: none
-- run by: pipeline verify, prune
-- why: the sum of 60 bits of each row's MD5 is the same in any order; pgqueue.spark.lake.checksum writes a row as the same
--      text. The whole partition of the day is read. lake_versions.sql has the sum of versions. In the lake, the columns in left_out are null, and those in
--      hashed are the hashes that pgqueue.spark.lake.columns makes; in columns of JSON they are strings. An instant is written
--      in microseconds since 1970. Up to 2040 a double gives them exactly, as its error is below 0.4 µs (2^-53 of less than 2^51,
--      and half of its spacing there); numeric takes longer
with ended as (
    select 'history' as source, hash_record_extended(row(xmin, ctid), 0) as version, {history as ended}
    from pgqueue.job_history
    where finished_at >= %(day)s::date::timestamp at time zone 'UTC'
      and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in >= %(since)s::bigint and ended_in < %(below)s::bigint
    union all
    select 'dead', 0, {dead as ended}
    from pgqueue.dead_jobs
    where died_at >= %(day)s::date::timestamp at time zone 'UTC'
      and died_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
      and ended_in >= %(dead_from)s::bigint and ended_in <= %(dead_to)s::bigint and ended_in < %(below)s::bigint
),
in_the_lake as (
    select source, version, {others of ended},
           {instants of ended: case when NAME between '1970-01-01 00:00+00' and '2040-01-01 00:00+00'
                then (date_part('epoch', NAME) * 1000000)::bigint else (extract(epoch from NAME) * 1000000)::bigint end as NAME},
           case when 'unique_key' = any(%(left_out)s::text[]) then null
                when 'unique_key' = any(%(hashed)s::text[])
                then encode(sha256(convert_to(%(key)s::text || unique_key, 'UTF8')), 'hex')
                else unique_key end as unique_key,
           {documents of ended: case when 'NAME' = any(%(left_out)s::text[]) then null
                when 'NAME' = any(%(hashed)s::text[])
                then '"' || encode(sha256(convert_to(%(key)s::text || NAME, 'UTF8')), 'hex') || '"'
                else NAME end as NAME}
    from ended
),
spelled as (
    select source, version, concat_ws(e'\x1f', {ended: coalesce(NAME::text, e'\x1e')}) as words
    from in_the_lake
)
select source, count(*), sum(('x' || substr(md5(convert_to(words, 'UTF8')), 1, 15))::bit(60)::bigint)::text,
       sum(version)::text
from spelled
group by source
