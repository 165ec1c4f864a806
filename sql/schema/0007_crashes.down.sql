-- Takes away what is known of attempts whose worker died. Jobs that are dead as crashed become exhausted.

update pgqueue.dead_jobs set reason = 'exhausted' where reason = 'crashed';
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown', 'expired')) not valid;
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after; expired: not started by expires_at.';

delete from pgqueue.notes where kind = 'start';
alter table pgqueue.notes drop constraint notes_kind_check;
alter table pgqueue.notes add constraint notes_kind_check check (kind in ('step', 'checkpoint', 'progress'));

update pgqueue.jobs set at_end = nullif(at_end & ~16::smallint, 0) where at_end & 16::smallint = 16;
update pgqueue.dead_jobs set at_end = nullif(at_end & ~16::smallint, 0) where at_end & 16::smallint = 16;
comment on column pgqueue.jobs.at_end is
    'What its end concerns, as a sum: 1, a program that waits for it is notified; 2, it is part of a flow, 4, and there a member '
    'of a group; 8, its flow decides at its start whether it runs. Null: nothing.';

create or replace function pgqueue.note_departure() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.departed (worker_id) select id from pgqueue.workers on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        select id, started_at, greatest(started_at, least(now(), lease_until)), concurrency, host, version, queues
        from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.departed (worker_id) values (old.id) on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        values (old.id, old.started_at, greatest(old.started_at, least(now(), old.lease_until)), old.concurrency, old.host,
                old.version, old.queues) on conflict do nothing;
    end if;
    return null;
end $$;
alter table pgqueue.departed drop column memory;
alter table pgqueue.workers drop column memory;
