-- workers/say_contracts: store contracts of tasks, or that they were said again.
-- index: task_contracts_pkey, deploys_pkey
-- locks: the rows of these contracts, in the order of their tasks
-- run by: worker start, with what workers/new_contracts has found
-- rights: worker
-- why: many workers start at once; a row that another one has written meanwhile is not written again
insert into pgqueue.task_contracts as known (task, hash, arguments, result, version, first_seen, last_seen)
select task, hash, arguments::json, result::json, (select version from pgqueue.deploys order by deployed_at desc limit 1), now, now
from unnest(%(tasks)s::text[], %(hashes)s::text[], %(arguments)s::text[], %(results)s::text[]) as said (task, hash, arguments, result),
     (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
order by task, hash
on conflict (task, hash) do update set last_seen = excluded.last_seen
where known.last_seen < excluded.last_seen - interval '1 minute'
   or exists (select from pgqueue.task_contracts as later
              where later.task = known.task and later.last_seen > known.last_seen and later.last_seen < excluded.last_seen)
