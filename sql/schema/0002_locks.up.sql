-- Locks the tables that this revision changes.

-- Nothing is rewritten, but while the tables change no other transaction may have them open, and every completion waits
-- behind a transaction that waits for that. So the locks are asked for in short attempts: while a long report reads the
-- history, workers go on. An attempt releases every table, so it causes no deadlock with transactions that lock them in
-- another order. The last three are for
-- revision 0003: where both run in one transaction, it must not ask for them while this one holds the history.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.job_history, pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.departed, pgqueue.queues;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.job_history or pgqueue.dead_jobs open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;
