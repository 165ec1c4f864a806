-- limits/declare: store limits as the code has them; numbers that an operator has set stay.
-- index: limits_pkey
-- locks: those rows
-- run by: workers, at their start and where a lane's limit is not known
insert into pgqueue.limits as known (name, most, every, burst, declared)
select name, most, every, burst, declared
from unnest(%(names)s::text[], %(mosts)s::integer[], %(everies)s::bigint[], %(bursts)s::bigint[], %(declared)s::text[])
     as new (name, most, every, burst, declared)
order by name
on conflict (name) do update
set declared = excluded.declared,
    most = case when known.set_at is null then excluded.most else known.most end,
    every = case when known.set_at is null then excluded.every else known.every end,
    burst = case when known.set_at is null then excluded.burst else known.burst end
where known.declared is distinct from excluded.declared
