-- Workers, and those that are gone; what a worker is asked to do; and which enqueues notify idle workers.

create table pgqueue.workers (
    id                  uuid        primary key,
    started_at          timestamptz not null default now(),
    lease_until         timestamptz not null,
    heard_at            timestamptz not null default now(),
    pid                 integer     not null,
    concurrency         integer     not null,
    idle                boolean     not null default false,
    host                text        not null,
    version             text        not null,
    queues              text[],
    tasks               text[],
    chosen_tasks        text[],
    -- what it says with each heartbeat
    minimum             integer,
    slots               integer,
    taken               integer,
    quiet            boolean,
    supervised          boolean,
    memory              bigint,
    running             bigint[],
    looked_at           timestamptz,
    look_within         double precision,
    cannot_listen_since timestamptz,
    blocked_since       timestamptz,
    blocked_job         bigint,
    blocked_task        text,
    blocked_where       text,
    not_returned        integer,
    overrunning         bigint[],
    -- what it is asked to do
    ask_minimum         integer,
    ask_maximum         integer,
    ask_quiet        boolean,
    ask_end             text        check (ask_end in ('stop', 'restart')),
    asked_at            timestamptz,
    asked_by            text,
    answer              text,
    constraint workers_ask_slots check (
        (ask_minimum is null) = (ask_maximum is null) and ask_minimum >= 1 and ask_maximum between ask_minimum and 10000)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table pgqueue.workers is 'Worker processes; each holds its claims while lease_until is in the future.';
comment on column pgqueue.workers.heard_at is 'When it last renewed its lease, which it does three times in the length of the lease.';
comment on column pgqueue.workers.id is 'A new uuid for each process, and after a lost lease.';
comment on column pgqueue.workers.started_at is 'When it started.';
comment on column pgqueue.workers.lease_until is 'Until when its claims are its own.';
comment on column pgqueue.workers.host is 'The name of its machine.';
comment on column pgqueue.workers.pid is 'The number of its process.';
comment on column pgqueue.workers.version is 'Its release of pgqueue.';
comment on column pgqueue.workers.concurrency is 'The most jobs that it runs at a time.';
comment on column pgqueue.workers.idle is 'Wants to be notified of new jobs. Busy workers look again by themselves.';
comment on column pgqueue.workers.queues is 'The queues served; null: all.';
comment on column pgqueue.workers.tasks is 'The tasks that it runs; null: not said, any may be.';
comment on column pgqueue.workers.chosen_tasks is 'What it was told of tasks: names, patterns, and with ! before it what it does not run; null: nothing.';
comment on column pgqueue.workers.minimum is 'It chooses how many jobs to run at a time, from this number to concurrency. Null: a take.';
comment on column pgqueue.workers.slots is 'How many jobs it runs at a time, at its last heartbeat.';
comment on column pgqueue.workers.taken is 'How many of these are taken, at its last heartbeat; null: not said.';
comment on column pgqueue.workers.quiet is 'It claims no jobs, at its last heartbeat.';
comment on column pgqueue.workers.supervised is 'A supervisor starts it again when it is asked to restart.';
comment on column pgqueue.workers.memory is 'Resident memory of its process in bytes, at its last heartbeat; null: not said.';
-- Running jobs are in no index, and a large table is not read to find them.
comment on column pgqueue.workers.running is
    'Jobs that it ran at its last heartbeat, those that started first at the front, up to 1,000. Null: not said.';
comment on column pgqueue.workers.looked_at is
    'When it last claimed jobs, asked and found none, or had no free slot, at its last heartbeat; null: it stops, or not known.';
comment on column pgqueue.workers.look_within is 'After this many seconds without a later looked_at, the worker does not serve; null: not known.';
comment on column pgqueue.workers.cannot_listen_since is
    'Since when notifications have not arrived, at its last heartbeat; null: they do, are not expected, or not known.';
comment on column pgqueue.workers.blocked_since is
    'Since when the worker''s event loop has been blocked, at its last heartbeat; null: it was not, or is not known.';
comment on column pgqueue.workers.blocked_job is 'The job that blocks the event loop; null: none does, or other code.';
comment on column pgqueue.workers.blocked_task is 'Its task, or the name of the asyncio task that blocks the event loop.';
comment on column pgqueue.workers.blocked_where is 'Where it blocks: file:line in function.';
comment on column pgqueue.workers.not_returned is
    'How many functions went on after their timeout, or after their job was lost, at its last heartbeat; null: not known.';
comment on column pgqueue.workers.overrunning is
    'Those of its running jobs that wait for the return of such a function, at its last heartbeat, up to 1,000; null: not said.';
comment on column pgqueue.workers.ask_minimum is 'It is to choose how many jobs to run at a time, from this number on; null: nothing is asked.';
comment on column pgqueue.workers.ask_maximum is 'And up to this number.';
comment on column pgqueue.workers.ask_quiet is 'True: it is to claim no more jobs; false: to claim again.';
comment on column pgqueue.workers.ask_end is 'It is to stop or to restart, when its running jobs have ended or its grace is over.';
comment on column pgqueue.workers.asked_at is 'When it was last asked to do anything.';
comment on column pgqueue.workers.asked_by is 'Who asked, for people to read.';
comment on column pgqueue.workers.answer is 'Why it does not do what it was asked to do, or why it is replaced; null: it does, or is not.';

-- By pgqueue or by an update of this table: the worker is told at its commit, and looks at its row.
-- callers: trigger
create function pgqueue.worker_asked() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.asked_at is not distinct from old.asked_at then
        new.asked_at := clock_timestamp();
        new.asked_by := session_user;
    end if;
    perform pg_notify(tg_table_schema || '.wake', 'asked:' || new.id);
    return new;
end $$;
create trigger workers_asked before update of ask_minimum, ask_maximum, ask_quiet, ask_end on pgqueue.workers
    for each row execute function pgqueue.worker_asked();

-- A worker that has claimed a job of a task that it does not run notes the task here, if no other live worker that serves the queue
-- runs it. A worker that runs it takes the row away.
create table pgqueue.unknown_tasks (
    queue       text        not null,
    task        text        not null,
    since       timestamptz not null,
    met_at      timestamptz not null,
    primary key (queue, task)
) with (fillfactor = 50);
comment on table pgqueue.unknown_tasks is 'Tasks of ready jobs that no live worker runs, as workers that claimed such jobs found.';
comment on column pgqueue.unknown_tasks.queue is 'The queue of the jobs.';
comment on column pgqueue.unknown_tasks.task is 'The task that no live worker runs.';
comment on column pgqueue.unknown_tasks.since is 'Since when no live worker that serves the queue has run it.';
comment on column pgqueue.unknown_tasks.met_at is 'When a worker last claimed a job of it. Each worker tries again after a minute.';

create table pgqueue.lost_workers (
    worker_id   uuid        primary key,
    lost_at     timestamptz not null default now(),
    again_at    timestamptz,
    memory      bigint
);
comment on table pgqueue.lost_workers is 'Workers that went off the list and may have left running jobs behind, until a sweep has returned those.';
comment on column pgqueue.lost_workers.worker_id is
    'A lost worker that may have left running jobs. A sweep deletes the row when it has reclaimed these.';
comment on column pgqueue.lost_workers.lost_at is 'When its lease passed, or its row was deleted.';
comment on column pgqueue.lost_workers.again_at is
    'Not to be looked for before then: one of its jobs could not be ended, and looking means reading all jobs.';
comment on column pgqueue.lost_workers.memory is 'As it was in workers.';

create table pgqueue.former_workers (
    id          uuid        primary key,
    started_at  timestamptz not null,
    ended_at    timestamptz not null,
    concurrency integer     not null,
    pid         integer,
    lost_jobs   integer,
    host        text        not null,
    version     text        not null,
    queues      text[]
);
create index former_workers_lost on pgqueue.former_workers (ended_at) where lost_jobs is not null;
comment on table pgqueue.former_workers is 'Workers that went off the list: how much could have been run, and when. Kept as long as the history.';
comment on column pgqueue.former_workers.id is 'As in workers.';
comment on column pgqueue.former_workers.started_at is 'As in workers.';
comment on column pgqueue.former_workers.host is 'As in workers.';
comment on column pgqueue.former_workers.version is 'As in workers.';
comment on column pgqueue.former_workers.concurrency is 'As in workers, when it stopped.';
comment on column pgqueue.former_workers.queues is 'As in workers, when it stopped.';
comment on column pgqueue.former_workers.pid is 'As in workers.';
comment on column pgqueue.former_workers.lost_jobs is
    'How many of its running jobs a sweep took over, since the worker was lost; null: it ended in order, or no sweep has looked yet.';
comment on column pgqueue.former_workers.ended_at is 'When it left, or its lease ran out: it may be swept away long after.';

-- Notes each worker whose row is deleted, by a sweep, by a user or by TRUNCATE, so that a sweep looks for its jobs. Running
-- jobs are in no index, so a sweep looks for them only then.
-- callers: trigger
create function pgqueue.note_lost_worker() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.lost_workers (worker_id, memory) select id, memory from pgqueue.workers on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, pid, host, version, queues)
        select id, started_at, greatest(started_at, least(now(), lease_until)), concurrency, pid, host, version, queues
        from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.lost_workers (worker_id, memory) values (old.id, old.memory) on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, pid, host, version, queues)
        values (old.id, old.started_at, greatest(old.started_at, least(now(), old.lease_until)), old.concurrency, old.pid, old.host,
                old.version, old.queues) on conflict do nothing;
    end if;
    return null;
end $$;
create trigger workers_lost after delete on pgqueue.workers for each row execute function pgqueue.note_lost_worker();
create trigger workers_lost_at_once before truncate on pgqueue.workers for each statement execute function pgqueue.note_lost_worker();

-- NOTIFY takes a lock that every notifying commit of the whole database shares, so it is sent only while a worker is idle. One
-- trigger serves every way in: enqueue, COPY and the SQL function. It reads the sequence in a microsecond, and needs no plan and
-- no snapshot for it; looking into the table of workers took a tenth of an enqueue.
create sequence pgqueue.idle_workers maxvalue 2;
comment on sequence pgqueue.idle_workers is '2 while a worker is idle, 1 while none is; every poll sets it right.';
-- callers: trigger
create function pgqueue.wake_idle_workers() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify(tg_table_schema || '.wake', '');
    return null;
end $$;
create trigger jobs_wake_idle_workers after insert on pgqueue.jobs
    for each statement when (pg_sequence_last_value('pgqueue.idle_workers') > 1)
    execute function pgqueue.wake_idle_workers();

-- Setting a sequence is not part of a transaction, and two workers may become idle or busy at the same moment: so every poll sets it again.
-- callers: worker, operator
create function pgqueue.tell_of_idle_workers() returns void language sql set search_path = pg_catalog, pg_temp as $$
    select setval('pgqueue.idle_workers', said)
    from (select case when exists (select from pgqueue.workers where idle) then 2 else 1 end as said) as now
    where said is distinct from pg_sequence_last_value('pgqueue.idle_workers')
$$;
-- callers: trigger
create function pgqueue.worker_turned() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    perform pgqueue.tell_of_idle_workers();
    return null;
end $$;
create trigger workers_turn after insert or update of idle or delete or truncate on pgqueue.workers
    for each statement execute function pgqueue.worker_turned();
