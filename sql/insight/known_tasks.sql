-- insight/known_tasks: what workers have said of their tasks, by name; of the longest schemas nothing.
-- index: none: a row for each task
-- locks: none
-- run by: Insight.known_tasks
-- rights: monitor
select task, queue, priority, max_attempts,
       case when length(arguments::text) <= %(longest)s::integer then arguments::text end,
       case when length(result::text) <= %(longest)s::integer then result::text end
from pgqueue.known_tasks
where %(task)s::text is null or task = %(task)s::text
order by task
limit %(limit)s::integer
