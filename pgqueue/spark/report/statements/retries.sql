-- The retries of a task, by hour.
select hour, cast(retries as double) as retries
from hours
where queue = $queue and task = $task and hour between $first and $last
