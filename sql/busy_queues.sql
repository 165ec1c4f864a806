-- busy_queues: the queues in which ready jobs stand, found by skipping through the index.
-- index: jobs_ready
-- locks: none
-- run by: workers that serve all queues
with recursive line as (
    (select queue from pgqueue.jobs where status = 'ready' order by queue limit 1)
    union all
    select (select job.queue from pgqueue.jobs as job
            where job.status = 'ready' and job.queue > line.queue
            order by job.queue limit 1)
    from line where line.queue is not null
)
select queue from line where queue is not null
