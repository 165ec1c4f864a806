-- What a worker says of its health with each heartbeat: what blocks its event loop, and which functions it gave up on.

-- Columns without a default, and which may be null, are added without reading or writing a row. Workers of the previous
-- release leave them null. The table is asked for in short attempts, as in revision 0002, so that workers go on while
-- another transaction has it open. Revision 0006 changes jobs and dead_jobs. An upgrade may run both in one transaction,
-- and a claim that waits for workers has jobs open: so the lock on all is taken here, at once.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.queues;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, dead_jobs or workers open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

alter table pgqueue.workers
    add column blocked_since timestamptz,
    add column blocked_job bigint,
    add column blocked_task text,
    add column blocked_where text,
    add column not_returned integer;
comment on column pgqueue.workers.blocked_since is
    'Since when the worker''s event loop has been blocked, at its last heartbeat; null: it was not, or is not known.';
comment on column pgqueue.workers.blocked_job is 'The job that blocks the event loop; null: none does, or other code.';
comment on column pgqueue.workers.blocked_task is 'Its task, or the name of the asyncio task that blocks the event loop.';
comment on column pgqueue.workers.blocked_where is 'Where it blocks: file:line in function.';
comment on column pgqueue.workers.not_returned is
    'How many plain functions were given up and had not returned, at its last heartbeat; null: not known.';
