-- notes/progress: how far a job is, as it last said, with what a codec is told of the job.
-- index: notes_pkey, jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.progress, JobHandle.progress
-- rights: reader
select note.value::text, note.at, job.task, job.meta::text
from pgqueue.notes as note cross join pgqueue.all_jobs as job
where note.job_id = %(id)s::bigint and note.kind = 'progress' and job.id = %(id)s::bigint
