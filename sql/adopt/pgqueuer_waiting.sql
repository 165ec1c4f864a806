-- adopt/pgqueuer_waiting: lock and read the next of PgQueuer's waiting jobs; skip those that its workers are taking.
-- index: none
-- locks: the rows it returns; its workers skip them until the transaction ends
-- run by: pgqueue adopt pgqueuer
select id, entrypoint, null::text, priority,
       case when execute_after > coalesce(%(now)s::timestamptz, now()) then execute_after end,
       dedupe_key, null::text, payload, attempts,
       coalesce(headers not in ('null', '{}'), false)
from pgqueuer
where status = 'queued' and id > %(after)s::bigint
  and (%(tasks)s::text[] is null or entrypoint = any (%(tasks)s::text[]))
order by id
limit %(limit)s::bigint
for update skip locked
