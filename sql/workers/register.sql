-- workers/register: make a worker known, under a first lease; the tasks that it runs are no longer noted as run by no worker.
-- index: none
-- locks: the new row; the rows of unknown tasks that go
-- run by: worker start, take
-- rights: worker
with known as (
    delete from pgqueue.unknown_tasks as unknown
    where (%(tasks)s::text[] is null or unknown.task = any(%(tasks)s::text[])) and pgqueue.serves(%(queues)s::text[], unknown.queue)
)
insert into pgqueue.workers (id, lease_until, heard_at, host, pid, concurrency, version, queues, tasks, chosen_tasks, idle, minimum, slots,
                             quiet, supervised)
values (%(worker)s::uuid, coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval,
        coalesce(%(now)s::timestamptz, now()), %(host)s::text, %(pid)s::integer,
        %(concurrency)s::integer, %(version)s::text, %(queues)s::text[], %(tasks)s::text[], %(chosen_tasks)s::text[],
        %(idle)s::boolean, %(minimum)s::integer, %(slots)s::integer, %(quiet)s::boolean, %(supervised)s::boolean)
on conflict (id) do nothing
