-- Takes it away; the tables are asked for as on the way up.

-- While a table changes no other transaction may have it open, and every claim, end and enqueue waits behind a transaction that
-- waits for that. So the locks are asked for in short attempts, all at once: while a long report reads a table, workers go on.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.job_history, pgqueue.dead_jobs, pgqueue.jobs;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.job_history, dead_jobs or jobs open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

drop trigger dead_jobs_noted on pgqueue.dead_jobs;
drop function pgqueue.note_death();
drop table pgqueue.obituaries;
alter table pgqueue.jobs drop column region;
alter table pgqueue.job_history drop column region;
create or replace function pgqueue.history_args() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select history_args from pgqueue.retention
$$;
