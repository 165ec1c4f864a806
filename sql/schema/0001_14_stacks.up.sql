-- Where running jobs are in their code: a program asks for the stack of a job, and the worker that runs it answers.

-- A table of its own: it has rows only while people look at running jobs. Rows of ten minutes ago are removed by the next question.
create table pgqueue.stacks (
    job_id      bigint      primary key,
    worker_id   uuid        not null,
    asked_at    timestamptz not null default now(),
    asked_by    text,
    answered_at timestamptz,
    stack       text        check (length(stack) <= 50000)
);
comment on table pgqueue.stacks is 'For which running jobs a worker is asked where they are in their code, and its answers of the last minutes.';
comment on column pgqueue.stacks.job_id is 'Of which job.';
comment on column pgqueue.stacks.asked_at is 'When a caller asked.';
comment on column pgqueue.stacks.answered_at is 'When the worker answered; null: it has not.';
comment on column pgqueue.stacks.worker_id is 'The worker that held the job when it was asked.';
comment on column pgqueue.stacks.asked_by is 'Who asked, for people to read.';
comment on column pgqueue.stacks.stack is 'A line for each call, the innermost last, and its source; or why there is none.';
