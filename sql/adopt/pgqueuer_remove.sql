-- adopt/pgqueuer_remove: delete the copied jobs from PgQueuer, write this to its log as PgQueuer does, and count them.
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
