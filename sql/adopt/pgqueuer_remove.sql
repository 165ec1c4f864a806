-- adopt/pgqueuer_remove: take from PgQueuer the jobs that have been copied, note it in its log as it does itself, and count them.
-- index: none
-- locks: the rows of the jobs
-- run by: pgqueue adopt pgqueuer
with gone as (
    delete from pgqueuer where id = any (%(ids)s::bigint[]) returning id, entrypoint, priority
),
noted as (
    insert into pgqueuer_log (job_id, status, entrypoint, priority)
    select id, 'deleted', entrypoint, priority from gone
)
select count(*) from gone
