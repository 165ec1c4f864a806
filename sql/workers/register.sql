-- workers/register: make a worker known, under a first lease.
-- index: none
-- locks: none beyond the new row
-- run by: worker start, take
-- rights: worker
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, queues, tasks, idle, minimum, slots, draining,
                             supervised)
values (%(worker)s::uuid, coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval, %(host)s::text, %(pid)s::integer,
        %(concurrency)s::integer, %(version)s::text, %(queues)s::text[], %(tasks)s::text[], true, %(minimum)s::integer,
        %(slots)s::integer, %(draining)s::boolean, %(supervised)s::boolean)
on conflict (id) do nothing
