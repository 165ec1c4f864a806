-- workers/say_tasks: store what a worker says of its tasks, where that differs from what is stored.
-- index: known_tasks_pkey
-- locks: the rows that change
-- run by: worker start
-- rights: worker
insert into pgqueue.known_tasks as known (task, queue, priority, max_attempts, arguments, result)
select task, queue, priority, max_attempts, arguments::jsonb, result::jsonb
from unnest(%(tasks)s::text[], %(queues)s::text[], %(priorities)s::smallint[], %(attempts)s::integer[], %(arguments)s::text[],
            %(results)s::text[]) as said (task, queue, priority, max_attempts, arguments, result)
where not exists (  -- a conflict locks the row, also where nothing differs
    select from pgqueue.known_tasks as known
    where known.task = said.task
      and (known.queue, known.priority, known.max_attempts, known.arguments, known.result)
          is not distinct from (said.queue, said.priority, said.max_attempts, said.arguments::jsonb, said.result::jsonb))
order by task  -- two workers that start at once lock the rows in one order
on conflict (task) do update
set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, arguments = excluded.arguments,
    result = excluded.result, said_at = excluded.said_at
where (known.queue, known.priority, known.max_attempts, known.arguments, known.result)
      is distinct from (excluded.queue, excluded.priority, excluded.max_attempts, excluded.arguments, excluded.result)
