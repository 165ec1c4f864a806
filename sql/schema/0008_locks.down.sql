-- Locks the tables that this revision and those before it change.

-- The tables that this revision and those before it change are asked for in short attempts, as on the way up.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.nodes in share update exclusive mode;  -- its fillfactor changes: nodes are read and written meanwhile
            lock table pgqueue.job_history, pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.departed, pgqueue.notes, pgqueue.waits, pgqueue.schedules, pgqueue.queues;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, job_history, dead_jobs, workers, departed, notes, waits, schedules, queues or nodes open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;
