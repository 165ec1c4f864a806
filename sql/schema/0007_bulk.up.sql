-- How far an operation on many jobs is: the row that says who did what is its state, too, and is written with each portion.

alter table pgqueue.audit
    add column counts   jsonb,
    add column after_id bigint,
    add column up_to    bigint,
    add column later    bigint[],
    add column ended_at timestamptz;
comment on table pgqueue.audit is 'What operators did to queues, jobs and workers: who, when, what, and to how many jobs.';
comment on column pgqueue.audit.target is 'The queue, the worker, or the pattern that was given; * is all.';
comment on column pgqueue.audit.counts is 'What became of the jobs: done, asked (running ones), and why others were skipped.';
comment on column pgqueue.audit.after_id is 'The operation continues with the jobs behind this id. Null: this was no operation on many jobs.';
comment on column pgqueue.audit.up_to is 'The last id when it began: later jobs are left alone.';
comment on column pgqueue.audit.later is 'Jobs that another transaction had locked: it tries them again at the end.';
comment on column pgqueue.audit.ended_at is 'When the operation ended; null with an after_id: it runs, or was interrupted.';
