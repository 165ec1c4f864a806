-- limits/lock_lane: wait until no other transaction adds a job to this lane.
-- index: none
-- locks: an advisory lock of the lane, until the transaction ends
-- run by: the plan that enqueues a job whose limit does not let it wait
-- why: what comes next has to see what the transaction that had the lock before has added, so it is another statement
select pg_advisory_xact_lock(hashtextextended(%(lane)s::text, 7))
