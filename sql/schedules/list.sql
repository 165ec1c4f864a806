-- schedules/list: schedules by name, with the last tick of each.
-- index: schedules_pkey, schedule_ticks_pkey
-- locks: none
-- run by: Schedules.list, Schedules.get
-- rights: reader
select name, module, created_at, task, queue, pgqueue.as_jsonb(args)::text, priority, max_attempts, unique_key, meta::text,
       cron, every, schedule.at, timezone, anchor, start_at, end_at, gap, repeat, jitter, missed, missed_limit, tolerance, overlap,
       settled, next_at, paused_at, paused_by, failed_at, error, last.at
from pgqueue.schedules as schedule
left join lateral (
    select tick.at from pgqueue.schedule_ticks as tick
    where tick.schedule = schedule.name and state = 'fired' order by tick.at desc limit 1
) as last on true
where name > %(after)s::text and (%(name)s::text is null or name = %(name)s::text)
  and (%(task)s::text is null or task = %(task)s::text)
order by name limit %(limit)s::integer
