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
comment on column pgqueue.sink_attempts.id is 'A try.';
comment on column pgqueue.sink_attempts.write_id is 'The write.';
comment on column pgqueue.sink_attempts.partition is 'The partition of the DataFrame.';
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
    meta         pgqueue.short_json,
    lane         pgqueue.short_text,
    cost         integer,
    refusal      pgqueue.short_json,
    primary key (attempt_id, place)
) with (  -- all that is written is deleted again, soon
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0
);
comment on table pgqueue.sink_rows is 'Jobs to be, of DataFrames that are being written.';
comment on column pgqueue.sink_rows.attempt_id is 'The try that staged the row.';
comment on column pgqueue.sink_rows.place is 'Which row of its partition it was, from 1.';
comment on column pgqueue.sink_rows.lane is 'The keys of its limits, where a codec hides its arguments from the database; null: the database makes them.';
comment on column pgqueue.sink_rows.refusal is
    'Why the row cannot be a job, and what it is known by: reason, contents, key. Null: it becomes a job.';

create table pgqueue.sink_writes (
    id         uuid        primary key,
    batch      bigint,
    rows       bigint      not null,
    enqueued   bigint      not null,
    rejected   bigint      not null,
    changed    bigint      not null,
    written_at timestamptz not null default now(),
    refused    bigint      not null default 0,
    repeats    uuid,
    task       text        not null,
    run        text,
    query      text,
    key        json,
    jobs       int8multirange not null default '{}',
    earlier    int8multirange not null default '{}'
);
comment on table pgqueue.sink_writes is 'DataFrames that were written, each in one transaction.';
comment on column pgqueue.sink_writes.id is 'The write.';
comment on column pgqueue.sink_writes.written_at is 'When it was committed.';
comment on column pgqueue.sink_writes.task is 'The task of its jobs.';
comment on column pgqueue.sink_writes.rows is 'How many rows it had.';
comment on column pgqueue.sink_writes.enqueued is 'How many of them became jobs.';
comment on column pgqueue.sink_writes.rejected is 'How many were rejected.';
comment on column pgqueue.sink_writes.refused is 'How many cannot be jobs, and are in sink_refused.';
comment on column pgqueue.sink_writes.run is 'The run of which the write is; a stream that names none has the id of its query. Null: it had no name.';
comment on column pgqueue.sink_writes.query is 'Of a stream: the id of its query.';
comment on column pgqueue.sink_writes.batch is 'Of a stream: which of its batches.';
comment on column pgqueue.sink_writes.key is 'The columns that each job keeps in its meta, to be found by: their names, and their types in Spark.';
-- A job keeps its id for as long as there is a record of it, so the ids tell which jobs are of a write without a word in any job, and
-- jobs are found by their primary keys. One transaction adds them: they are one range, but where others enqueue meanwhile.
comment on column pgqueue.sink_writes.jobs is 'The ids of its jobs.';
comment on column pgqueue.sink_writes.earlier is 'Of a stream''s last batch: the ids of the jobs of batches of which there is no record any more.';
comment on column pgqueue.sink_writes.changed is 'Rows that changed a waiting job of their unique key, where its policy says so.';
comment on column pgqueue.sink_writes.repeats is 'The write of this name that had enqueued its jobs before, so that this one enqueued none.';
-- What makes a write of a name happen once. Batches are counted by query: two queries of one run each have a batch 0.
create unique index sink_writes_once on pgqueue.sink_writes (coalesce(query, run), coalesce(batch, -1)) where repeats is null;
create index sink_writes_run on pgqueue.sink_writes (run, written_at) where repeats is null;
create index sink_writes_written_at on pgqueue.sink_writes (written_at);

create table pgqueue.sink_rejected (
    write_id   uuid    not null,
    job_id     bigint  not null,
    partition  integer not null,
    place      integer not null,
    unique_key text    not null,
    key        json,
    primary key (write_id, partition, place)
);
comment on table pgqueue.sink_rejected is 'Rows of DataFrames whose unique key was taken, and the job that held it.';
comment on column pgqueue.sink_rejected.write_id is 'The write.';
comment on column pgqueue.sink_rejected.partition is 'The partition of the DataFrame.';
comment on column pgqueue.sink_rejected.place is 'Which row of the partition it was, from 1.';
comment on column pgqueue.sink_rejected.unique_key is 'Its key, which was taken.';
comment on column pgqueue.sink_rejected.job_id is 'The job that held the key.';
comment on column pgqueue.sink_rejected.key is 'Its key columns, where the write named some.';

create table pgqueue.sink_refused (
    write_id  uuid    not null,
    partition integer not null,
    place     integer not null,
    reason    text    not null,
    contents  text    not null,
    key       json,
    primary key (write_id, partition, place)
);
comment on table pgqueue.sink_refused is 'Rows of DataFrames that cannot be jobs, where the write diverts them.';
comment on column pgqueue.sink_refused.write_id is 'The write.';
comment on column pgqueue.sink_refused.partition is 'The partition of the DataFrame.';
comment on column pgqueue.sink_refused.place is 'Which row of the partition it was, from 1.';
comment on column pgqueue.sink_refused.reason is 'Why it cannot be a job; without secrets.';
comment on column pgqueue.sink_refused.contents is 'Its unique key, or the beginning of its columns; without secrets.';
comment on column pgqueue.sink_refused.key is 'Its key columns, where the write named some.';

-- callers: worker, operator, monitor, reader, pipeline
create function pgqueue.jobs_of_run(name text) returns int8multirange
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(range_agg(ids), '{}')
    from pgqueue.sink_writes as write, unnest(array[write.jobs, write.earlier]) as ids
    where write.run = jobs_of_run.name and write.repeats is null
$$;
comment on function pgqueue.jobs_of_run(text) is 'The ids of the jobs of a run: of all writes of its name.';
