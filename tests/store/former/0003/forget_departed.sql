-- forget_departed: these workers' jobs have all been seen to.
-- index: departed_pkey
-- locks: those rows
-- run by: worker upkeep, take
delete from pgqueue.departed where worker_id = any(%(workers)s::uuid[])
