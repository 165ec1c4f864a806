-- Takes away how this release fires schedules that are due.

drop trigger schedules_added on pgqueue.schedules;
drop trigger schedules_overlap on pgqueue.schedules;
drop function pgqueue.find_live_jobs();
drop function pgqueue.fire_due_ticks;
