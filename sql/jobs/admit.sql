-- jobs/admit: remove these reasons, and make those jobs ready or scheduled that wait for nothing else; which, and their status.
-- index: waits_pkey, waits_job_id, jobs_pkey
-- locks: the rows of the admitted jobs, which lock_blocked has locked
-- run by: the plan that admits jobs
-- why: a job keeps its priority, its run_at and its id, and so its place among the ready jobs
with removed as (
    delete from pgqueue.waits where waits_for = any(%(reasons)s::text[]) returning job_id
)
update pgqueue.jobs as job
set status = case when job.run_at > coalesce(%(now)s::timestamptz, now()) then 'scheduled' else 'ready' end
where job.id = any(array(select job_id from removed)) and job.status = 'blocked'
  and not exists (
      select from pgqueue.waits as other
      where other.job_id = job.id and other.waits_for <> all(%(reasons)s::text[]))
returning job.id, job.status
