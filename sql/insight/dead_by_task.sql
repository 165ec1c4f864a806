-- insight/dead_by_task: how many of the last dead jobs each task of a queue has: those with the most, and all others as one row.
-- index: dead_jobs_ended_in
-- locks: none
-- run by: QueueMetrics
-- rights: monitor
with last_dead as (
    select queue, task from pgqueue.dead_jobs order by ended_in desc limit %(looked_at)s::integer
),
by_task as (
    select queue, task, count(*) as jobs, row_number() over (order by count(*) desc, queue, task) as place
    from last_dead group by queue, task
)
select case when place <= %(limit)s::integer then queue end as queue, case when place <= %(limit)s::integer then task end as task,
       sum(jobs)::bigint as jobs
from by_task group by 1, 2 order by 3 desc, 1, 2
