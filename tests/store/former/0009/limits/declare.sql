-- limits/declare: store limits as the code has them; numbers that an operator has set stay.
-- index: limits_pkey
-- locks: those rows
-- run by: workers, at their start and where a lane's limit is not known
-- why: what is stored already is not locked: another worker may claim under it now
insert into pgqueue.limits as known (name, most, every, burst, declared)
select name, most, every, burst, declared
from unnest(%(names)s::text[], %(mosts)s::integer[], %(everies)s::bigint[], %(bursts)s::bigint[], %(declared)s::text[])
     as new (name, most, every, burst, declared)
where not exists (select from pgqueue.limits as same where same.name = new.name and same.declared = new.declared)
order by name
on conflict (name) do update
set declared = excluded.declared,
    most = case when known.set_at is null then excluded.most else known.most end,
    every = case when known.set_at is null then excluded.every else known.every end,
    burst = case when known.set_at is null then excluded.burst else known.burst end
