-- jobs/shorten_hold: take back the period of a job that was not added, because a live job has the key.
-- index: unique_holds_pkey
-- locks: the key's row in unique_holds
-- run by: Task.enqueue with Throttle(trailing=True)
-- rights: producer --also unique
update pgqueue.unique_holds set held_until = held_until - %(period)s::interval
where unique_key = %(unique_key)s::text and job_id = %(job_id)s::bigint
