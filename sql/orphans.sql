-- orphans: note as departed whoever running jobs name that is not on the list and was never seen to go, as after a partial restore.
-- index: none (reads the jobs from end to end: running ones are in no index)
-- locks: none beyond the new rows
-- run by: worker upkeep, soon after its start and hardly ever after
insert into pgqueue.departed (worker_id)
select distinct worker_id from pgqueue.jobs
where status = 'running' and not exists (select from pgqueue.workers where id = worker_id)
on conflict do nothing
returning worker_id
