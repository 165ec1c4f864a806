-- pipeline/lake_lock: be the only one who writes to the lake, for as long as the connection lasts; false: somebody else is.
-- index: none
-- locks: the schema's advisory lock
-- run by: pipeline export, verify, prune
select pg_try_advisory_lock(hashtext('pgqueue.lake'), 1)
