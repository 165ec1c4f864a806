-- limits/declare_tasks: store which limits and shares tasks have, for jobs that SQL enqueues; forget those that have none any more.
-- index: limited_tasks_pkey
-- locks: those rows
-- run by: workers, at their start
with gone as (
    delete from pgqueue.limited_tasks where task = any(%(known)s::text[]) and task <> all(%(names)s::text[])
)
insert into pgqueue.limited_tasks (task, keys, cost)
select task, keys, cost from unnest(%(names)s::text[], %(keys)s::jsonb[], %(costs)s::jsonb[]) as new (task, keys, cost)
where not exists (select from pgqueue.limited_tasks as same
                  where same.task = new.task and (same.keys, same.cost) is not distinct from (new.keys, new.cost))
order by task
on conflict (task) do update set keys = excluded.keys, cost = excluded.cost
