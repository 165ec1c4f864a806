-- flows/count: count new members of groups as open.
-- index: node_counts_pkey
-- locks: the counted rows, in their order
-- run by: the plan that enqueues flows; the plan that adds to them
-- rights: producer --also flows
insert into pgqueue.node_counts as known (node_id, portion, open)
select node_id, portion, open
from unnest(%(nodes)s::bigint[], %(portions)s::integer[], %(opens)s::integer[]) as new (node_id, portion, open)
order by node_id, portion
on conflict (node_id, portion) do update set open = known.open + excluded.open
