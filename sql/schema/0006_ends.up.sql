-- What has to be done when a job ends, and until when a blocked job waits.

-- Columns without a default, and which may be null, are added without reading or writing a row. The tables are asked for
-- in short attempts, as in revision 0002, so that workers and enqueuers go on while another transaction has one open.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.queues, pgqueue.waits, pgqueue.schedules;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, dead_jobs, waits or schedules open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

alter table pgqueue.jobs add column at_end smallint;
alter table pgqueue.dead_jobs add column at_end smallint;
alter table pgqueue.waits add column until timestamptz;
create index waits_until on pgqueue.waits (until) where until is not null;
comment on column pgqueue.jobs.at_end is
    'What its end concerns, as a sum: 1, a program that waits for it is notified; 2, it is part of a flow, 4, and there a member '
    'of a group; 8, its flow decides at its start whether it runs. Null: nothing.';
comment on column pgqueue.dead_jobs.at_end is 'As in jobs.';
comment on column pgqueue.waits.until is
    'When the job is admitted though this has not happened; null: it waits as long as it takes.';

-- As in revision 0004, and what the job's end concerns goes with it.
create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors, meta, at_end)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time), meta, at_end
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor moved to the dead jobs (%): tried again in an hour',
        job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;
