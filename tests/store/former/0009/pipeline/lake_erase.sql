-- pipeline/lake_erase: delete jobs that ended on a day from the history and the dead jobs, by their ids and transactions.
-- index: dead_jobs_pkey
-- locks: those rows
-- run by: pipeline erase
-- why: the lake has these rows, too, so the same ones are deleted; the day's partition of the history is read
with unwanted as (
    select * from unnest(%(ids)s::bigint[], %(ended_in)s::bigint[]) as unwanted (id, ended_in)
),
history as (
    delete from pgqueue.job_history using unwanted
    where job_history.id = unwanted.id and job_history.ended_in = unwanted.ended_in
      and finished_at >= %(day)s::date::timestamp at time zone 'UTC'
      and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
    returning 1
),
dead as (
    delete from pgqueue.dead_jobs using unwanted
    where dead_jobs.id = unwanted.id and dead_jobs.ended_in = unwanted.ended_in
    returning 1
)
select (select count(*) from history) + (select count(*) from dead)
