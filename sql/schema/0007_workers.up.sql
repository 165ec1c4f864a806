-- What a worker is asked to do from outside, and what it does.

-- Columns without a default, and which may be null: the workers of former releases leave them null, and are asked nothing.
alter table pgqueue.workers
    add column minimum      integer,
    add column slots        integer,
    add column draining     boolean,
    add column supervised   boolean,
    add column answer       text,
    add column ask_minimum  integer,
    add column ask_maximum  integer,
    add column ask_draining boolean,
    add column ask_end      text check (ask_end in ('stop', 'restart')),
    add column asked_at     timestamptz,
    add column asked_by     text,
    add constraint workers_ask_slots check (
        (ask_minimum is null) = (ask_maximum is null) and ask_minimum >= 1 and ask_maximum between ask_minimum and 10000);
comment on column pgqueue.workers.concurrency is 'The most jobs that it runs at a time.';
comment on column pgqueue.workers.minimum is
    'It chooses how many jobs to run at a time, from this number to concurrency. Null: a take, or a worker of a former release.';
comment on column pgqueue.workers.slots is 'How many jobs it runs at a time, at its last heartbeat.';
comment on column pgqueue.workers.draining is 'It claims no jobs, at its last heartbeat.';
comment on column pgqueue.workers.supervised is 'A supervisor starts it again when it is asked to restart.';
comment on column pgqueue.workers.answer is 'Why it does not do what it was asked to do; null: it does.';
comment on column pgqueue.workers.ask_minimum is 'It is to choose how many jobs to run at a time, from this number on; null: nothing is asked.';
comment on column pgqueue.workers.ask_maximum is 'And up to this number.';
comment on column pgqueue.workers.ask_draining is 'True: it is to claim no more jobs; false: to claim again.';
comment on column pgqueue.workers.ask_end is 'It is to stop or to restart, when its running jobs have ended or its grace is over.';
comment on column pgqueue.workers.asked_at is 'When it was last asked to do anything.';
comment on column pgqueue.workers.asked_by is 'Who asked, for people to read.';

-- By pgqueue or by an update of this table: the worker is told at its commit, and looks at its row.
create function pgqueue.worker_asked() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.asked_at is not distinct from old.asked_at then
        new.asked_at := clock_timestamp();
        new.asked_by := session_user;
    end if;
    perform pg_notify(tg_table_schema || '.wake', 'asked:' || new.id);
    return new;
end $$;
create trigger workers_asked before update of ask_minimum, ask_maximum, ask_draining, ask_end on pgqueue.workers
    for each row execute function pgqueue.worker_asked();
