-- flows/lock_key: lock the keys of flows until this transaction ends.
-- index: none
-- locks: an advisory lock for each key, in their order
-- run by: the plan that enqueues flows; the plan that ends them
-- why: an enqueuer that sees a running flow of its key has its own flow wait; the end of that one must see it
select pg_advisory_xact_lock(hashtextextended('pgqueue flow ' || key, 0))
from (select distinct key from unnest(%(keys)s::text[]) as key order by key) as sorted
