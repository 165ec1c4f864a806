-- flows/end: end flows whose roots have ended; their keys.
-- index: flows_pkey
-- locks: the flows' rows, which the caller has locked
-- run by: the plan that ends jobs of flows
update pgqueue.flows as flow
set state = case when flow.state = 'cancelled' then flow.state else one.state end, ended_at = coalesce(%(now)s::timestamptz, now())
from unnest(%(flows)s::bigint[], %(states)s::text[]) as one (id, state)
where flow.id = one.id
returning flow.key
