-- workers/note_unlisted_workers: note as lost the workers that running jobs name and that the database does not know, as after a partial restore.
-- index: none (reads the jobs from end to end, twice: running ones are in no index)
-- locks: running jobs that name no worker, as after a manual repair; they are given the zero id
-- run by: worker upkeep, soon after its start and hardly ever after
with nameless as (
    update pgqueue.jobs set worker_id = '00000000-0000-0000-0000-000000000000'
    where status = 'running' and worker_id is null
    returning worker_id
)
insert into pgqueue.lost_workers (worker_id)
select worker_id from pgqueue.jobs
where status = 'running' and worker_id is not null and not exists (select from pgqueue.workers where id = worker_id)
union select worker_id from nameless
on conflict do nothing
returning worker_id
