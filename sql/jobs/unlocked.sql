-- jobs/unlocked: lock those of a batch of jobs that no other transaction has locked; tell which of the others are live.
-- index: jobs_pkey
-- locks: the rows it returns as true
-- run by: worker completer, when a batch was held up
with free as (
    select id from pgqueue.jobs
    where id = any(%(ids)s::bigint[])
    for update skip locked
)
select job.id, free.id is not null
from pgqueue.jobs as job left join free on free.id = job.id
where job.id = any(%(ids)s::bigint[])
