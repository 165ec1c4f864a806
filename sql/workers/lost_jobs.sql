-- workers/lost_jobs: the running jobs of these lost workers.
-- index: none (reads the jobs from end to end: running ones are in no index)
-- locks: none
-- run by: worker upkeep, take
-- rights: monitor
select id, worker_id from pgqueue.jobs
where status = 'running' and worker_id = any(%(workers)s::uuid[])
order by id
