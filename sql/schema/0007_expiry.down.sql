-- Takes away until when jobs have to be started, and the bounds of queues. Jobs wait for as long as it takes.

alter table pgqueue.queues drop column backlog, drop column when_full;

update pgqueue.dead_jobs set reason = 'unknown' where reason = 'expired';
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown')) not valid;
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after.';

alter table pgqueue.schedules drop column expires_in;
drop index pgqueue.jobs_expires_at;
alter table pgqueue.jobs drop column expires_at;
