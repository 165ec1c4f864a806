-- flows/copy_jobs: add the jobs of a flow that have no unique key.
-- index: none
-- locks: none beyond the new rows
-- run by: the plan that enqueues flows
-- rights: producer --also flows
copy pgqueue.jobs (id, status, {new}, flags) from stdin with (encoding 'utf8')
