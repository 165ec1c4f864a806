-- adopt/procrastinate_remove: take from Procrastinate the jobs that have been copied, and count them.
-- index: none
-- locks: the rows of the jobs and their events, which go with them
-- run by: pgqueue adopt procrastinate
with gone as (
    delete from procrastinate_jobs where id = any (%(ids)s::bigint[]) returning id
)
select count(*) from gone
