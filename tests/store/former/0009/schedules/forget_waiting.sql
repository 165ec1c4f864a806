-- schedules/forget_waiting: note that the waiting ticks of removed schedules do not fire.
-- index: schedule_ticks_waiting
-- locks: those rows
-- run by: Schedules.remove, worker start
update pgqueue.schedule_ticks set state = 'skipped' where schedule = any(%(names)s::text[]) and state = 'waiting'
