-- The run times of a task, by hour.
select hour, run_p50, run_p90
from hours
where queue = $queue and task = $task and hour between $first and $last and run_p50 is not null and run_p90 is not null
