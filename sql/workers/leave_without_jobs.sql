-- workers/leave_without_jobs: forget that a worker left, since it held no job: no sweeper needs to look for its jobs.
-- index: lost_workers_pkey
-- locks: that row
-- run by: worker stop, take
delete from pgqueue.lost_workers where worker_id = %(worker)s::uuid
