-- limits/running: how many jobs of each lane run now.
-- index: jobs_running_in_lanes
-- locks: none
-- run by: a claim from lanes, after it has locked the limits, in the same transaction
-- why: counted from the jobs themselves: however a job stops running, its place is free, and no crash can lose one
select queue, lane, count(*)
from pgqueue.jobs where status = 'running' and lane is not null
group by queue, lane
