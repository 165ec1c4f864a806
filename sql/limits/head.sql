-- limits/head: the job that a claim of one job would take from a lane, or from a queue that is itself limited; a claim of it was refused.
-- index: jobs_lanes, jobs_ready
-- locks: the row, until the statement ends; rows that others hold locked are skipped, as by limits/claim
-- run by: worker fetcher, after the database has refused a claim of one limited job
select id, task
from (select id, task from pgqueue.jobs
      where in_lane and %(inside)s::boolean and queue = %(queue)s::text and lane = %(lane)s::text
        and id <> all(%(passed)s::bigint[]) and task <> all(%(left_out)s::text[])
      order by queue, lane, -priority, run_at, id
      limit 1
      for update skip locked) as waiting
union all
select id, task
from (select id, task from pgqueue.jobs
      where status = 'ready' and not %(inside)s::boolean and queue = %(queue)s::text and id <> all(%(passed)s::bigint[]) and task <> all(%(left_out)s::text[])
      order by -priority, run_at, id
      limit 1
      for update skip locked) as ready
