-- adopt/procrastinate_remove: delete the copied jobs from Procrastinate, and count them.
-- index: none
-- locks: the rows of the jobs and of their events, which are deleted with them
-- run by: pgqueue adopt procrastinate
with gone as (
    delete from procrastinate_jobs where id = any (%(ids)s::bigint[]) returning id
)
select count(*) from gone
