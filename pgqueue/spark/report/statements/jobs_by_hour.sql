-- How many jobs of some queues, and of all others together, ended in each hour of the reported week.
select
    case when list_contains(cast($queues as varchar[]), queue) then queue else $others end as label,
    hour,
    cast(sum(jobs) as double) as jobs
from hours
where hour >= $begin
group by all
