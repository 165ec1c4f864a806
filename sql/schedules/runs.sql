-- schedules/runs: the ticks of a schedule, the latest first, and how the job of each stands.
-- index: schedule_ticks_pkey
-- locks: none
-- run by: Schedules.runs
-- rights: monitor
select tick.at, tick.fired_at, tick.kind, tick.state, tick.job_id, job.state
from (select * from pgqueue.schedule_ticks
      where schedule = %(name)s::text and (%(before)s::timestamptz is null or at < %(before)s::timestamptz)
      order by at desc limit %(limit)s::integer) as tick
left join lateral (select state from pgqueue.all_jobs where id = tick.job_id limit 1) as job on true
order by tick.at desc
