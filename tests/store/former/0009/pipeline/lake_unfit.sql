-- pipeline/lake_unfit: some rows of a day with an instant that a lake cannot hold, and which column has it.
-- index: none
-- locks: none
-- run by: pipeline export
-- why: it is asked only where a day could not be exported, to name the rows; the whole partition of the day is read
select ended.id, instants.name
from (
    select id, run_at, created_at, started_at from pgqueue.job_history
    where finished_at >= %(day)s::date::timestamp at time zone 'UTC'
      and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
    union all
    select id, run_at, created_at, started_at from pgqueue.dead_jobs
    where died_at >= %(day)s::date::timestamp at time zone 'UTC'
      and died_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
) as ended
cross join lateral (values ('run_at', run_at), ('created_at', created_at), ('started_at', started_at)) as instants (name, value)
where instants.value < '0001-01-01 00:00:00+00' or instants.value >= '10000-01-01 00:00:00+00'
order by ended.id limit %(limit)s::bigint
