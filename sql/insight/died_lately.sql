-- insight/died_lately: how many jobs died in each step, of a queue or task or of all; without a step: when the first job that was read died, if there may be more.
-- index: dead_jobs_ended_in
-- locks: none
-- run by: Insight.ended
-- rights: monitor
with died as materialized (
    select queue, task, died_at from pgqueue.dead_jobs order by ended_in desc limit %(looked_at)s::integer
)
select date_bin(%(step)s::interval, died_at, %(since)s::timestamptz), count(*), null::timestamptz
from died
where died_at >= %(since)s::timestamptz and died_at < %(until)s::timestamptz
  and (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
group by 1
union all
select null, 0, case when count(*) = %(looked_at)s::integer then pgqueue.as_datetime(min(died_at)) end from died
