-- pipeline/lake_lock: take the lake's lock until the connection ends; false if another session holds it.
-- index: none
-- locks: the schema's advisory lock
-- run by: pipeline export, verify, prune
select pg_try_advisory_lock(hashtext('pgqueue.lake'), 1)
