-- Attempts whose worker died: what is known of the worker's memory, when an attempt of a suspect began, and the end of such jobs.

alter table pgqueue.workers add column memory bigint;
comment on column pgqueue.workers.memory is
    'Resident memory of its process in bytes, at its last heartbeat; null: not said.';

alter table pgqueue.departed add column memory bigint;
comment on column pgqueue.departed.memory is 'As it was in workers.';

-- As in revision 0002, and the worker's memory goes with it.
create or replace function pgqueue.note_departure() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.departed (worker_id, memory) select id, memory from pgqueue.workers on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        select id, started_at, greatest(started_at, least(now(), lease_until)), concurrency, host, version, queues
        from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.departed (worker_id, memory) values (old.id, old.memory) on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        values (old.id, old.started_at, greatest(old.started_at, least(now(), old.lease_until)), old.concurrency, old.host,
                old.version, old.queues) on conflict do nothing;
    end if;
    return null;
end $$;

comment on column pgqueue.jobs.at_end is
    'What its end concerns, as a sum: 1, a program that waits for it is notified; 2, it is part of a flow, 4, and there a member '
    'of a group; 8, its flow decides at its start whether it runs; 16, a worker died that had claimed it: a worker notes when it '
    'starts another attempt. Null: nothing.';

-- The kind "start": under which fence an attempt of a suspect began.
alter table pgqueue.notes drop constraint notes_kind_check;
alter table pgqueue.notes add constraint notes_kind_check
    check (kind in ('step', 'checkpoint', 'progress', 'start')) not valid;

-- Every reason is in this one list: a later part that adds another repeats it whole.
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown', 'expired', 'crashed')) not valid;
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after; expired: not started by expires_at; '
    'crashed: it killed too many workers.';
