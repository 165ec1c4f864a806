-- stacks/answer: say where jobs of a worker are in their code.
-- index: stacks_pkey
-- locks: the rows of these jobs, which no other worker writes
-- run by: worker heartbeat, where it was asked
update pgqueue.stacks as stack
set answered_at = coalesce(%(now)s::timestamptz, clock_timestamp()), stack = said.stack
from unnest(%(jobs)s::bigint[], %(stacks)s::text[]) as said (job_id, stack)
where stack.job_id = said.job_id and stack.worker_id = %(worker)s::uuid
