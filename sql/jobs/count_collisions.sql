-- jobs/count_collisions: count rejected enqueues on the jobs that hold their keys.
-- index: jobs_unique_key
-- locks: those jobs' rows, in the order of their ids
-- run by: PgQueue.enqueue_many
with holder as (
    select job.id, job.unique_key, count(*) as times
    from unnest(%(unique_keys)s::text[]) as rejected (unique_key)
    join pgqueue.jobs as job on job.unique_key = rejected.unique_key
    group by job.id, job.unique_key
),
locked as (
    select job.id from pgqueue.jobs as job
    where job.id in (select id from holder)
    order by job.id for update
)
update pgqueue.jobs as job set collisions = job.collisions + holder.times
from holder join locked on locked.id = holder.id
where job.id = holder.id
returning job.unique_key, job.id
