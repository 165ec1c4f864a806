-- queues/move: put some waiting jobs of a queue into another one; after which id to go on, null at the end, and how many were moved.
-- index: jobs_pkey
-- locks: the moved rows; rows that others hold locked are skipped
-- run by: QueueControl.move
with looked as (
    select id, queue, status from pgqueue.jobs where id > %(after)s::bigint order by id limit %(limit)s::integer
),
moved as (
    update pgqueue.jobs set queue = %(target)s::text
    where id = any(array(select id from pgqueue.jobs
                         where id = any(array(select id from looked where queue = %(queue)s::text and status <> 'running'))
                           and status <> 'running' and queue = %(queue)s::text
                         for update skip locked))
    returning id
)
select (select max(id) from looked having count(*) = %(limit)s::integer), (select count(*) from moved)
