-- Takes the core away, with every job in it.

drop function pgqueue.drop_history_before(date);
drop function pgqueue.ensure_history_days(date, date);
drop function pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text);
drop view pgqueue.all_jobs;
drop table pgqueue.jobs, pgqueue.job_history, pgqueue.dead_jobs, pgqueue.workers, pgqueue.departed, pgqueue.queues,
           pgqueue.unique_holds, pgqueue.compatibility;
drop function pgqueue.wake_sleepers();
drop function pgqueue.worker_turned();
drop function pgqueue.tell_of_sleepers();
drop sequence pgqueue.sleepers;
drop function pgqueue.note_departure();
drop domain pgqueue.priority, pgqueue.allowance, pgqueue.live_status, pgqueue.arguments;
