-- schedules/apply_lock: wait until no other app stores what its code declares.
-- index: none
-- locks: the schema's advisory lock of declared schedules, until the transaction ends
-- run by: Schedules.apply, worker start
-- why: two versions of an app that start at once delete each other's rows and then add their own: they would deadlock
select pg_advisory_xact_lock(hashtext('pgqueue.schedules'))
