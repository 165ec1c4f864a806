-- pipeline/lake_in_the_way: the transactions in progress below a number, oldest first, with their owners and ages.
-- index: none
-- locks: none
-- run by: pipeline export
-- why: pg_stat_activity has the lower 32 bits of a transaction's number; it hides what this role may not see
with progressing as (
    select xip::text::bigint as xid
    from pg_snapshot_xip(pg_current_snapshot()) as xip
    where xip::text::bigint < %(below)s::bigint
)
select activity.pid, activity.application_name, activity.usename::text, activity.datname::text,
       extract(epoch from clock_timestamp() - activity.xact_start)::float8
from progressing join pg_stat_activity as activity on activity.backend_xid::text::bigint = mod(progressing.xid, 4294967296)
union all
select null, 'prepared transaction ' || prepared.gid, prepared.owner::text, prepared.database::text,
       extract(epoch from clock_timestamp() - prepared.prepared)::float8
from progressing join pg_prepared_xacts as prepared on prepared.transaction::text::bigint = mod(progressing.xid, 4294967296)
order by 5 desc
