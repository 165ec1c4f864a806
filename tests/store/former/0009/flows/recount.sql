-- flows/recount: change how many members of groups are open, and how many have failed.
-- index: node_counts_pkey
-- locks: the changed rows, in their order; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- why: by differences, since members that succeed are counted without the lock of the flow
with locked as materialized (
    select known.node_id, known.portion, given.open, given.failed
    from pgqueue.node_counts as known
    join unnest(%(nodes)s::bigint[], %(portions)s::integer[], %(opens)s::integer[], %(faileds)s::integer[])
         as given (node_id, portion, open, failed)
      on known.node_id = given.node_id and known.portion = given.portion
    where known.node_id = any(%(nodes)s::bigint[])
    order by known.node_id, known.portion
    for update of known
)
update pgqueue.node_counts as known set open = known.open + locked.open, failed = known.failed + locked.failed
from locked where known.node_id = locked.node_id and known.portion = locked.portion
