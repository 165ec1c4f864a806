-- insight/details: what a list shows of live jobs beside their records: what a blocked one waits for, who runs one, how far it is.
-- index: jobs_pkey, waits_job_id, notes_pkey
-- locks: none
-- run by: Insight.details
-- rights: reader
select job.id, case when job.status = 'blocked' and job.in_lane then job.lane end as lane,
       case when job.status = 'blocked' then (select min(waits_for) from pgqueue.waits where waits.job_id = job.id) end as waits_for,
       queue.paused_at is not null as paused,
       case when job.status = 'running' then worker.host || ':' || worker.pid end as worker,
       note.value::text as progress, pgqueue.as_datetime(note.at) as noted_at, job.task, job.meta::text
from pgqueue.jobs as job
left join pgqueue.queues as queue on queue.name = job.queue
left join pgqueue.workers as worker on worker.id = job.worker_id
left join pgqueue.notes as note on note.job_id = job.id and note.kind = 'progress' and job.status = 'running'
where job.id = any(%(ids)s::bigint[])
