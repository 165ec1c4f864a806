-- insight/unknown_tasks: the tasks that no worker knew when their jobs came to their turn: of which queue, how many jobs, since when.
-- index: jobs_scheduled
-- locks: none
-- run by: health checks
-- rights: monitor
-- why: such a job goes back for 15 s, so only jobs that are due within a minute are looked at, and 5,000 at most
select task, queue, count(*), min(unknown_since)
from (select queue, task, unknown_since from pgqueue.jobs
      where status = 'scheduled' and run_at <= coalesce(%(now)s::timestamptz, now()) + interval '1 minute'
      order by run_at
      limit 5000) as soon
where unknown_since is not null
group by task, queue
order by 4, 1, 2
