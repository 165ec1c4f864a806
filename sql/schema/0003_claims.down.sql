drop function pgqueue.promote_due(timestamptz, integer);
drop function pgqueue.set_aside(bigint, text, timestamptz);
drop function pgqueue.instant(text);

update pgqueue.dead_jobs set reason = 'undecodable' where reason = 'unknown';
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked'));
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task; asked: the task raised Dead.';

alter table pgqueue.workers drop column tasks;
alter table pgqueue.jobs drop column unknown_since;
