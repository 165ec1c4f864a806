-- limits/named: how many jobs have a limit in their lane, and how many of them wait in it now; and the tasks that had the limit when a worker of theirs last started.
-- index: none: reads the jobs that have lanes
-- locks: none
-- run by: queue.control.limits
-- rights: monitor
select count(*), count(*) filter (where in_lane),
       array(select task from pgqueue.limited_tasks
             where keys @> jsonb_build_array(jsonb_build_object('limit', %(name)s::text)) order by task)
from pgqueue.jobs
where lane is not null
  and %(name)s::text = any(array(select split_part(key, ' ', 1) from string_to_table(lane, E'\n') as key))
