-- Until when a job has to be started; for how long the jobs of a schedule may wait; how many ready jobs a queue may have.

comment on column pgqueue.jobs.expires_at is
    'No attempt starts at this instant or later: the job is dead, expired. Null: it waits for as long as it takes.';

alter table pgqueue.schedules add column expires_in interval check (expires_in > '0');
comment on column pgqueue.schedules.expires_in is
    'For how long a job of a tick may wait from the time when it may start; null: for as long as it takes.';

-- Every reason of this release is in this one list: a later part that adds another repeats it whole.
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown', 'expired')) not valid;
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after; expired: not started by expires_at.';

-- A queue that says nothing has no bound.
alter table pgqueue.queues
    add column backlog   integer check (backlog between 1 and 1000000),
    add column when_full text check (when_full in ('warn', 'refuse'));
comment on column pgqueue.queues.backlog is 'From how many ready jobs on it is full; null: never.';
comment on column pgqueue.queues.when_full is 'What an enqueue to a full queue does: refuse, it fails; warn or null, it logs a warning.';
