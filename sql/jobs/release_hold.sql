-- jobs/release_hold: remove a hold whose job was not added, because a live job has the key.
-- index: unique_holds_pkey
-- locks: the key's row in unique_holds
-- run by: Task.enqueue with Unique(period=...)
-- rights: producer --also unique
delete from pgqueue.unique_holds
where unique_key = %(unique_key)s::text and job_id = %(job_id)s::bigint
