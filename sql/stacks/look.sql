-- stacks/look: the answer to the last question for the stack of a job, if it was asked in the last ten minutes.
-- index: stacks_pkey
-- locks: none
-- run by: QueueControl.stack, Insight.story
-- rights: reader
select coalesce(worker.host || ':' || worker.pid, stack.worker_id::text), stack.asked_at, stack.answered_at, stack.stack
from pgqueue.stacks as stack left join pgqueue.workers as worker on worker.id = stack.worker_id
where stack.job_id = %(id)s::bigint and stack.asked_at > coalesce(%(now)s::timestamptz, now()) - interval '10 minutes'
