-- Locks the tables that this revision changes.

-- They are asked for in short attempts, as in revision 0002, so that workers and enqueuers go on while another transaction
-- has one open. An upgrade may run several revisions in one transaction, and a claim that waits for a table has the others
-- open: so earlier revisions lock these tables, too, where they exist by then.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.nodes in share update exclusive mode;  -- its fillfactor changes: nodes are read and written meanwhile
            lock table pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.departed, pgqueue.queues;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, dead_jobs, workers, departed, queues or nodes open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;
