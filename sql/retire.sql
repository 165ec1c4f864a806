-- retire: forget the departure of a worker that held no job: no sweep needs to look for its jobs.
-- index: departed_pkey
-- locks: that row
-- run by: worker stop, take
delete from pgqueue.departed where worker_id = %(worker)s::uuid
