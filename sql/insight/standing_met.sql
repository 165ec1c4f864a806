-- insight/standing_met: queues and states of which there are jobs, as a look at the first ones by index tells: a sample may miss them.
-- index: jobs_scheduled, waits_pkey, jobs_pkey, dead_jobs_ended_in
-- locks: none
-- run by: Insight.queues, where a table is large
-- rights: monitor
-- why: queues whose jobs wait in lanes are found by limits/queues
select job.queue, 'blocked'
from (select job_id from pgqueue.waits order by waits_for, job_id limit 1000) as waiting
join pgqueue.jobs as job on job.id = waiting.job_id
union
select queue, 'scheduled'
from (select queue from pgqueue.jobs where status = 'scheduled' order by run_at limit 1000) as soon
union
select queue, 'dead' from (select queue from pgqueue.dead_jobs order by ended_in desc limit 1000) as late
