-- alerts/dead: how many of the last dead jobs are of a queue, a task and a time.
-- index: dead_jobs_ended_in
-- locks: none
-- run by: worker upkeep, drain
-- rights: monitor
select count(*)
from (select queue, task, died_at from pgqueue.dead_jobs order by ended_in desc limit %(looked_at)s::integer) as last_dead
where (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
  and (%(within)s::interval is null or died_at > coalesce(%(now)s::timestamptz, now()) - %(within)s::interval)
