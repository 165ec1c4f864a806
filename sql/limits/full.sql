-- limits/full: how many places a limit has, how many of a lane's jobs run, and which wait in the lane, the oldest first.
-- index: jobs_running_in_lanes, jobs_lanes, limits_pkey
-- locks: none
-- run by: the plan that enqueues a job whose limit does not let it wait
-- rights: producer --also when_full
select coalesce((select most from pgqueue.limits where name = %(limit)s::text), %(most)s::integer),
       (select count(*) from pgqueue.jobs where status = 'running' and worker_id is not null and lane = %(lane)s::text),
       array(select id from pgqueue.jobs where in_lane and queue = %(queue)s::text and lane = %(lane)s::text order by id)
