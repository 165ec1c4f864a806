-- left_behind: the running jobs in the names of these workers.
-- index: none (reads the jobs from end to end: running ones are in no index)
-- locks: none
-- run by: worker upkeep, take
select id, worker_id from pgqueue.jobs
where status = 'running' and worker_id = any(%(workers)s::uuid[])
order by id
