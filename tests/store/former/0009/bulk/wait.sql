-- bulk/wait: let time pass, for other transactions that hold jobs locked.
-- index: none
-- locks: none
-- run by: QueueControl.jobs, QueueControl.dead
select pg_catalog.pg_sleep(%(seconds)s::float8)
