-- workers/new_contracts: which of these contracts are not stored, or are not the last that was said of their task, or were last said an hour ago.
-- index: task_contracts_pkey
-- locks: none
-- run by: worker start
-- rights: monitor
select said.number::integer
from unnest(%(tasks)s::text[], %(hashes)s::text[]) with ordinality as said (task, hash, number)
left join pgqueue.task_contracts as known on known.task = said.task and known.hash = said.hash
where known.last_seen is null or known.last_seen < coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) - interval '1 hour'
   or exists (select from pgqueue.task_contracts as later where later.task = known.task and later.last_seen > known.last_seen)
order by 1
