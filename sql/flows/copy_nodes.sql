-- flows/copy_nodes: add nodes.
-- index: none
-- locks: none beyond the new rows
-- run by: the plan that enqueues flows; the plan that adds to them
-- rights: producer --also flows
copy pgqueue.nodes (id, flow_id, parent_id, place, name, kind, state, waits_for, task, job_id, spec) from stdin with (encoding 'utf8')
