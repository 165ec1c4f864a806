-- Takes away what workers are asked to do. Workers go on as they are.

drop trigger workers_asked on pgqueue.workers;
drop function pgqueue.worker_asked();
alter table pgqueue.workers
    drop column minimum, drop column slots, drop column draining, drop column supervised, drop column answer,
    drop column ask_minimum, drop column ask_maximum, drop column ask_draining, drop column ask_end, drop column asked_at,
    drop column asked_by;
comment on column pgqueue.workers.concurrency is null;
