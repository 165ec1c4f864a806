-- queues/resume: let paused queues be claimed from again, and closed ones take jobs; those that were either.
-- index: none (a small table is read whole; queues_pkey in a larger one)
-- locks: those queues' rows, in the order of their names
-- run by: QueueControl.resume
-- why: the trigger on the table notifies idle workers. All statements lock queues in one order: else two operators who pause
--      and resume the same queues by a pattern wait for each other, and PostgreSQL ends one of them (deadlock)
with held as (
    select name from pgqueue.queues
    where name = any(%(queues)s::text[]) and (paused_at is not null or closed_at is not null)
    order by name for no key update
)
update pgqueue.queues as known set paused_at = null, closed_at = null
from held where known.name = held.name
returning known.name
