-- flows/lock_last_count: lock the count of the last members of a group.
-- index: node_counts_pkey
-- locks: that row
-- run by: the plan that adds to flows
-- why: counts are locked before the flow, as where members of a group end
select portion from pgqueue.node_counts where node_id = %(node)s::bigint order by portion desc limit 1 for update
