-- jobs/find_hold: the ended job for whose period a unique key is still held.
-- index: unique_holds_pkey, jobs_unique_key
-- locks: none
-- run by: Task.enqueue
-- rights: producer --also unique
-- why: a job that waits with the key takes the new enqueue's contents instead, unless the policy is to reject
select job_id from pgqueue.unique_holds
where unique_key = %(unique_key)s::text and held_until > coalesce(%(now)s::timestamptz, now())
  and (%(rejects)s::boolean or not exists (
      select from pgqueue.jobs where unique_key = %(unique_key)s::text and status <> 'running'))
