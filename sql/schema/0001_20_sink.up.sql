-- Where a DataFrame's jobs wait until all of them may be enqueued at once, and which writes there were.

-- Spark may try a partition several times, at once or one after the other, and says only at the end which try counts.
-- So every try stages its rows under a number of its own, and the commit takes those of the tries that count. Both tables
-- are unlogged, which halves the work: what a crash of the server empties is missed by the commit, which counts the rows.
create unlogged table pgqueue.sink_attempts (
    id        uuid        primary key,
    write_id  uuid        not null,
    partition integer     not null,
    staged_at timestamptz not null default now()
);
comment on table pgqueue.sink_attempts is 'Tries at a partition of a DataFrame that is being written.';
comment on column pgqueue.sink_attempts.staged_at is 'When rows were last staged; what rests for a day is swept away.';

create unlogged table pgqueue.sink_rows (
    attempt_id   uuid              not null,
    run_at       timestamptz,
    place        integer           not null,
    priority     pgqueue.priority,
    max_attempts pgqueue.allowance,
    queue        text              not null,
    unique_key   text,
    args         pgqueue.arguments not null,
    primary key (attempt_id, place)
) with (  -- all that is written is deleted again, soon
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0
);
comment on table pgqueue.sink_rows is 'Jobs to be, of DataFrames that are being written.';
comment on column pgqueue.sink_rows.place is 'Which row of its partition it was, from 1.';

create table pgqueue.sink_writes (
    id         uuid        primary key,
    batch      bigint,
    rows       bigint      not null,
    enqueued   bigint      not null,
    rejected   bigint      not null,
    changed    bigint      not null,
    written_at timestamptz not null default now(),
    repeats    uuid,
    task       text        not null,
    run        text
);
comment on table pgqueue.sink_writes is 'DataFrames that were written, each in one transaction.';
comment on column pgqueue.sink_writes.run is 'What the write was called; of a stream the id of its query. Null: it had no name.';
comment on column pgqueue.sink_writes.batch is 'Of a stream: which of its batches.';
comment on column pgqueue.sink_writes.changed is 'Rows that changed a waiting job of their unique key, where its policy says so.';
comment on column pgqueue.sink_writes.repeats is 'The write of this name that had enqueued its jobs before, so that this one enqueued none.';
-- What makes a write of a name happen once.
create unique index sink_writes_run on pgqueue.sink_writes (run, coalesce(batch, -1)) where repeats is null;
create index sink_writes_written_at on pgqueue.sink_writes (written_at);

create table pgqueue.sink_rejected (
    write_id   uuid    not null,
    job_id     bigint  not null,
    partition  integer not null,
    place      integer not null,
    unique_key text    not null,
    primary key (write_id, partition, place)
);
comment on table pgqueue.sink_rejected is 'Rows of DataFrames whose unique key was taken, and the job that held it.';
