-- workers/register: make a worker known, under a first lease; the tasks that it runs are no longer noted as run by no worker.
-- index: none
-- locks: the new row; the rows of unknown tasks that go
-- run by: worker start, take
-- rights: worker
with known as (
    delete from pgqueue.unknown_tasks as unknown
    where (%(tasks)s::text[] is null or unknown.task = any(%(tasks)s::text[])) and pgqueue.serves(%(queues)s::text[], unknown.queue)
)
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, queues, tasks, chosen_tasks, idle, minimum, slots,
                             draining, supervised)
values (%(worker)s::uuid, coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval, %(host)s::text, %(pid)s::integer,
        %(concurrency)s::integer, %(version)s::text, %(queues)s::text[], %(tasks)s::text[], %(chosen_tasks)s::text[],
        %(idle)s::boolean, %(minimum)s::integer, %(slots)s::integer, %(draining)s::boolean, %(supervised)s::boolean)
on conflict (id) do nothing
