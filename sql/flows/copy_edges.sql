-- flows/copy_edges: add edges.
-- index: none
-- locks: none beyond the new rows
-- run by: the plan that enqueues flows; the plan that adds to them
-- rights: producer --also flows
copy pgqueue.edges (from_id, to_id, rule) from stdin with (encoding 'utf8')
