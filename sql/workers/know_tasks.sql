-- workers/know_tasks: say which tasks a worker runs, since it has loaded more; they are no longer noted as run by no worker.
-- index: workers_pkey
-- locks: the worker's own row; the rows of unknown tasks that go
-- run by: worker heartbeat, after a task was loaded
with known as (
    delete from pgqueue.unknown_tasks as unknown
    where unknown.task = any(%(tasks)s::text[]) and pgqueue.serves(%(queues)s::text[], unknown.queue)
)
update pgqueue.workers set tasks = %(tasks)s::text[] where id = %(worker)s::uuid
