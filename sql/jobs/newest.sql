-- jobs/newest: the newest jobs in any state, with all that is recorded of them.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: pgqueue.testing
-- rights: reader
select {shown}
from pgqueue.all_jobs
order by id desc
limit %(limit)s::integer
