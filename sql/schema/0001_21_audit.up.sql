-- What operators did. An operation on many jobs has its state in the row that says who did what, and writes it with each portion.

create table pgqueue.audit (
    id       bigint      generated always as identity primary key,
    at       timestamptz not null default now(),
    said_by  text,
    action   text        not null,
    target   text        not null,
    details  jsonb,
    jobs     bigint,
    counts   jsonb,
    after_id bigint,
    up_to    bigint,
    later    bigint[],
    ended_at timestamptz
);
comment on table pgqueue.audit is 'What operators did to queues, jobs and workers: who, when, what, and to how many jobs.';
comment on column pgqueue.audit.id is 'A number; later entries have higher ones.';
comment on column pgqueue.audit.at is 'When it was done.';
comment on column pgqueue.audit.said_by is 'Who did it.';
comment on column pgqueue.audit.action is 'What was done: pause, set, cancel, worker stop, and so on.';
comment on column pgqueue.audit.details is 'What was said, such as the filter or the reason.';
comment on column pgqueue.audit.jobs is 'To how many jobs it was done.';
comment on column pgqueue.audit.target is 'The queue, the worker, or the pattern that was given; * is all.';
comment on column pgqueue.audit.counts is 'What became of the jobs: done, asked (running ones), and why others were skipped.';
comment on column pgqueue.audit.after_id is 'The operation continues with the jobs behind this id. Null: this was no operation on many jobs.';
comment on column pgqueue.audit.up_to is 'The last id when it began: later jobs are left alone.';
comment on column pgqueue.audit.later is 'Jobs that another transaction had locked: it tries them again at the end.';
comment on column pgqueue.audit.ended_at is 'When the operation ended; null with an after_id: it runs, or was interrupted.';
