-- Where jobs end: the history, and the dead jobs. And the view of all jobs, live or ended.

-- Rows of one moment become visible when their transactions commit, in any order. So a reader that must lose nothing does
-- not go by the clock but by the number of the transaction, ended_in: all that are lower than every transaction in progress
-- are there. txid_current is the one function that gives the number as a bigint, without a detour by text for every row.
create table pgqueue.job_history (
    id           bigint      not null,
    run_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    worker_id    uuid,
    collisions   integer     not null,
    priority     smallint    not null,
    attempts     smallint    not null,
    max_attempts smallint    not null,
    outcome      text        not null check (outcome in ('succeeded', 'cancelled')),
    queue        text        not null,
    task         text        not null,
    unique_key   text,
    args         json        not null,
    errors       jsonb,
    result       json,
    ended_in     bigint      not null default txid_current(),
    meta         jsonb
) partition by range (finished_at);
comment on table pgqueue.job_history is 'Jobs that succeeded or were cancelled, one partition per UTC day.';
comment on column pgqueue.job_history.started_at is 'When the last attempt began; null: none did.';
comment on column pgqueue.job_history.finished_at is 'When it ended.';
comment on column pgqueue.job_history.outcome is 'succeeded or cancelled.';
comment on column pgqueue.job_history.result is 'What the task returned. SQL null: nothing; JSON null: the result was not kept.';
comment on column pgqueue.job_history.ended_in is 'The number of the transaction in which it ended.';
comment on column pgqueue.job_history.meta is 'As in jobs.';
create index job_history_id on pgqueue.job_history (id);
-- Appended in this order, give or take, so a block range index finds the newest. It and the number cost 0.1 µs a row: 7 %
-- of a bare insert of that row, 1 % of the statement that completes a job.
create index job_history_ended_in on pgqueue.job_history using brin (ended_in) with (autosummarize = on);
-- Takes the rows of days without a partition (no worker made one in time); make_history_day empties it.
create table pgqueue.job_history_default partition of pgqueue.job_history default;

create table pgqueue.dead_jobs (
    id           bigint      primary key,
    run_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    died_at      timestamptz not null,
    worker_id    uuid,
    collisions   integer     not null,
    priority     smallint    not null,
    attempts     smallint    not null,
    max_attempts smallint    not null,
    reason       text        not null check (
        reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown', 'expired', 'crashed', 'deadline')),
    queue        text        not null,
    task         text        not null,
    unique_key   text,
    args         pgqueue.arguments not null,
    errors       jsonb,
    ended_in     bigint      not null default txid_current(),
    meta         jsonb,
    flags        smallint,
    lane         text,
    cost         integer
);
comment on table pgqueue.dead_jobs is 'Jobs that will not run again unless someone retries them.';
comment on column pgqueue.dead_jobs.started_at is 'When the last attempt began; null: none did.';
comment on column pgqueue.dead_jobs.died_at is 'When it died.';
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after; expired: not started by expires_at; '
    'crashed: it killed too many workers; deadline: what the task waits for did not happen in time.';
comment on column pgqueue.dead_jobs.ended_in is 'The number of the transaction in which it died.';
comment on column pgqueue.dead_jobs.meta is 'As in jobs.';
comment on column pgqueue.dead_jobs.flags is 'As in jobs.';
comment on column pgqueue.dead_jobs.lane is 'As in jobs.';
comment on column pgqueue.dead_jobs.cost is 'As in jobs.';
create index dead_jobs_ended_in on pgqueue.dead_jobs (ended_in);

-- Every column has one type in all three parts, domains cast away: else none of their indices would be used.
create view pgqueue.all_jobs as
    select id, status::text as state, queue::text, task::text, args::json, priority::smallint, run_at, created_at,
           claimed_at as started_at, null::timestamptz as ended_at, attempts, max_attempts::smallint,
           unique_key::text, collisions, worker_id, errors::jsonb,
           null::text as reason, null::json as result, meta::jsonb
    from pgqueue.jobs
    union all
    select id, 'dead', queue, task, args::json, priority, run_at, created_at, started_at,
           died_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, reason, null, meta
    from pgqueue.dead_jobs
    union all
    select id, outcome, queue, task, args, priority, run_at, created_at, started_at,
           finished_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, null, result, meta
    from pgqueue.job_history;
comment on view pgqueue.all_jobs is 'Every job there is a record of, live or ended, in one shape.';
