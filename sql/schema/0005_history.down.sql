-- Drops the bound of the arguments that the history keeps.

drop function pgqueue.history_args();
drop function pgqueue.keep_for(interval, interval, integer, text);
alter table pgqueue.retention drop column history_args;
