-- limits/declare_tasks: store which limits and shares tasks have, for jobs that SQL enqueues; forget those that have none any more.
-- index: limited_tasks_pkey
-- locks: those rows
-- run by: workers, at their start
with gone as (
    delete from pgqueue.limited_tasks where task = any(%(known)s::text[]) and task <> all(%(names)s::text[])
)
insert into pgqueue.limited_tasks (task, keys, cost, ordered, defaults)
select task, keys, cost, ordered, defaults
from unnest(%(names)s::text[], %(keys)s::jsonb[], %(costs)s::jsonb[], %(ordered)s::boolean[], %(defaults)s::jsonb[])
     as new (task, keys, cost, ordered, defaults)
where not exists (select from pgqueue.limited_tasks as same
                  where same.task = new.task and (same.keys, same.cost, same.ordered, same.defaults)
                       is not distinct from (new.keys, new.cost, new.ordered, new.defaults))
order by task
on conflict (task) do update set keys = excluded.keys, cost = excluded.cost, ordered = excluded.ordered, defaults = excluded.defaults
