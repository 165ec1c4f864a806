-- limits/lock: what these limits say, and lock them, but for those that another worker has locked; and the process of the server that answers.
-- index: limits_pkey
-- locks: the rows of the limits, in the order of their names; locked ones are skipped and said to be so
-- run by: a claim from lanes, before it counts, in the same transaction
-- why: the count has to be another statement: it must see what the worker that had the lock before has claimed
with locked as (
    select name from pgqueue.limits where name = any(%(names)s::text[]) order by name for no key update skip locked
)
select said.name, most, every, burst, locked.name is not null, pg_catalog.pg_backend_pid()
from pgqueue.limits as said left join locked on locked.name = said.name
where said.name = any(%(names)s::text[])
