-- Takes away how far operations are. Who did what stays, until the part queues goes.

alter table pgqueue.audit
    drop column counts, drop column after_id, drop column up_to, drop column later, drop column ended_at;
comment on table pgqueue.audit is 'What operators did to queues: who, when, what, and to how many jobs.';
comment on column pgqueue.audit.target is 'The queue, or the pattern that was given.';
