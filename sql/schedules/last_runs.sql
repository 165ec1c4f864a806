-- schedules/last_runs: the last ticks of each of these schedules, the latest first, and how the job of each stands.
-- index: schedule_ticks_pkey
-- locks: none
-- run by: Schedules.last_runs
-- rights: monitor
select wanted.name, tick.at, tick.fired_at, tick.kind, tick.state, tick.job_id, job.state
from unnest(%(names)s::text[]) as wanted (name)
cross join lateral (
    select * from pgqueue.schedule_ticks where schedule = wanted.name order by at desc limit %(limit)s::integer
) as tick
left join lateral (select state from pgqueue.all_jobs where id = tick.job_id limit 1) as job on true
order by wanted.name, tick.at desc
