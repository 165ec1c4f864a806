-- flows/copy_waits: add what the blocked jobs of a flow wait for.
-- index: none
-- locks: none beyond the new rows
-- run by: the plan that enqueues flows; the plan that adds to them
-- rights: producer --also flows
copy pgqueue.waits (waits_for, job_id) from stdin with (encoding 'utf8')
