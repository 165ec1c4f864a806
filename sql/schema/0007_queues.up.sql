-- Settings of queues, who paused them and why, and what operators did.

-- Columns without a default, and which may be null: a queue that has a row and no settings is as before. The table has a row
-- for each queue that was paused or given settings.
alter table pgqueue.queues
    add column paused_by    text,
    add column paused_why   text,
    add column drained_at   timestamptz,
    add column drained_by   text,
    add column drained_why  text,
    add column priority     pgqueue.priority,
    add column max_attempts pgqueue.allowance,
    add column timeout      interval check (timeout > '0'),
    add column keep_history boolean,
    add column keep_dead    interval check (keep_dead >= '0'),
    add column set_at       timestamptz,
    add column set_by       text;
comment on column pgqueue.queues.paused_by is 'Who paused it, for people to read.';
comment on column pgqueue.queues.paused_why is 'Why, for people to read.';
comment on column pgqueue.queues.drained_at is 'Since when enqueues to it are refused; null: they are not. Its jobs run.';
comment on column pgqueue.queues.drained_by is 'Who drained it, for people to read.';
comment on column pgqueue.queues.drained_why is 'Why, for people to read.';
comment on column pgqueue.queues.priority is 'Of jobs whose enqueue and task name none; null: 0.';
comment on column pgqueue.queues.max_attempts is 'Of jobs whose enqueue and task name none; null: 25.';
comment on column pgqueue.queues.timeout is 'How long an attempt may take whose task names no timeout; null: as long as it likes.';
comment on column pgqueue.queues.keep_history is 'False: jobs that succeed are not kept; null or true: as pgqueue.retention says.';
comment on column pgqueue.queues.keep_dead is 'For how long its dead jobs are kept; null: as pgqueue.retention says.';
comment on column pgqueue.queues.set_at is 'When these settings were stored last.';
comment on column pgqueue.queues.set_by is 'Who stored them, for people to read.';
