-- workers/expire_workers: take workers whose lease has passed off the list.
-- index: none (a handful of rows)
-- locks: the expired workers' rows, skipping locked ones
-- run by: worker upkeep, take
delete from pgqueue.workers
where id in (select id from pgqueue.workers
             where lease_until < coalesce(%(now)s::timestamptz, now())
             for update skip locked)
returning id
