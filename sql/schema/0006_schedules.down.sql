-- Takes away how this release fires schedules that are due.

drop function pgqueue.fire_due_ticks;
