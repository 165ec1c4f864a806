-- Alerts that code declares: what each looks at, which task is told, and how it stands.

-- All that a worker needs to look at an alert is in its row, so that a worker of any app can do it.
create table pgqueue.alerts (
    name           text        primary key check (length(name) between 1 and 200),
    module         text        not null,
    created_at     timestamptz not null default now(),
    rule           text        not null,
    after          interval    not null default '0',
    clear_for      interval    not null default '5 minutes',
    repeat_every   interval,
    resolved       boolean     not null default false,
    task           text        not null,
    argument       text        not null,
    queue          text        not null default 'default',
    priority       pgqueue.priority,
    max_attempts   pgqueue.allowance,
    expires_in     interval,
    next_at        timestamptz not null default now(),
    looked_at      timestamptz,
    value          float8,
    threshold      float8,
    summary        text,
    held_at        timestamptz,
    firing_at      timestamptz,
    clear_at       timestamptz,
    told_at        timestamptz,
    told           integer     not null default 0,
    job_id         bigint,
    silenced_until timestamptz,
    silenced_by    text,
    failed_at      timestamptz,
    error          text
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table pgqueue.alerts is 'Alerts that code declares: conditions, and the tasks that are told when one holds.';
comment on column pgqueue.alerts.name is 'What the alert is called.';
comment on column pgqueue.alerts.created_at is 'When it was added.';
comment on column pgqueue.alerts.repeat_every is 'After which time the task is told again while the alert is firing; null: it is not.';
comment on column pgqueue.alerts.resolved is 'The task is told when the alert is over, too.';
comment on column pgqueue.alerts.task is 'The task that is told.';
comment on column pgqueue.alerts.argument is 'The name of the task''s parameter for the alert.';
comment on column pgqueue.alerts.queue is 'The queue of the jobs by which it is told.';
comment on column pgqueue.alerts.priority is 'The priority of these jobs.';
comment on column pgqueue.alerts.max_attempts is 'After how many failed attempts such a job is dead.';
comment on column pgqueue.alerts.expires_in is 'For how long such a job may wait to be started; null: for as long as it takes.';
comment on column pgqueue.alerts.looked_at is 'When a worker looked at it last.';
comment on column pgqueue.alerts.value is 'What the last look found: seconds, or a number.';
comment on column pgqueue.alerts.threshold is 'What the value was compared with.';
comment on column pgqueue.alerts.summary is 'The value in words.';
comment on column pgqueue.alerts.job_id is 'The last job by which the task was told.';
comment on column pgqueue.alerts.silenced_until is 'Until when the task is told nothing.';
comment on column pgqueue.alerts.silenced_by is 'Who said so.';
comment on column pgqueue.alerts.failed_at is 'Since when looks fail or the task cannot be told; null: they do not.';
comment on column pgqueue.alerts.module is 'The module that declares it.';
comment on column pgqueue.alerts.rule is 'The condition, as JSON.';
comment on column pgqueue.alerts.after is 'For how long the condition must hold before the task is told.';
comment on column pgqueue.alerts.clear_for is 'For how long the condition must not hold before the alert is over.';
comment on column pgqueue.alerts.next_at is 'When a worker looks at it next.';
comment on column pgqueue.alerts.held_at is 'At which look the condition held first; null: it does not hold.';
comment on column pgqueue.alerts.firing_at is 'Since when it is firing; null: it is not.';
comment on column pgqueue.alerts.clear_at is 'At which look the condition of a firing alert held no more; null: it does.';
comment on column pgqueue.alerts.told_at is 'When the task was told last, since the alert is firing; null: it was not.';
comment on column pgqueue.alerts.told is 'How many times the task was told since then.';
comment on column pgqueue.alerts.error is 'Why looks fail, or why the task cannot be told; null: neither is so.';
