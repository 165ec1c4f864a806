-- queues/waiting: the ids of some waiting jobs of a queue, locked; and after which id to go on, null at the end.
-- index: jobs_pkey
-- locks: those rows; rows that others hold locked are skipped
-- run by: QueueControl.purge
with looked as (
    select id, queue, status from pgqueue.jobs where id > %(after)s::bigint order by id limit %(limit)s::integer
)
select (select max(id) from looked having count(*) = %(limit)s::integer),
       array(select id from pgqueue.jobs
             where id = any(array(select id from looked where queue = %(queue)s::text and status <> 'running'))
               and status <> 'running' and queue = %(queue)s::text
             order by id for update skip locked)
