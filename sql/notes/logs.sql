-- notes/logs: the last lines that the attempts of a job logged, with what a codec is told of the job; the oldest log first.
-- index: notes_pkey, jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: PgQueue.logs
-- rights: reader
select note.value::text, note.at, job.task, job.meta::text
from pgqueue.notes as note cross join pgqueue.all_jobs as job
where note.job_id = %(id)s::bigint and note.kind = 'log' and job.id = %(id)s::bigint
order by note.at
