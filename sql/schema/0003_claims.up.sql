-- What keeps one row from holding up the claims and promotions of all others, and what is known of jobs whose task no
-- worker knows.

-- Columns are added without a default and checks without looking at the rows, so nothing is rewritten. But while the
-- tables change no other transaction may have them open, so the locks are asked for in short attempts, as in revision 0002.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.job_history, pgqueue.jobs, pgqueue.dead_jobs, pgqueue.workers, pgqueue.departed, pgqueue.queues;
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

alter table pgqueue.jobs add column unknown_since timestamptz;
comment on column pgqueue.jobs.unknown_since is
    'When a worker first claimed the job without knowing its task; null: no worker has, since the job last ran.';

alter table pgqueue.workers add column tasks text[];
comment on column pgqueue.workers.tasks is 'The tasks registered there; null: not said, any may be.';

-- Every reason of this release is in this one list: a later part that adds another repeats it whole.
alter table pgqueue.dead_jobs drop constraint dead_jobs_reason_check;
alter table pgqueue.dead_jobs add constraint dead_jobs_reason_check
    check (reason in ('exhausted', 'refused', 'undecodable', 'asked', 'unknown')) not valid;
comment on column pgqueue.dead_jobs.reason is
    'exhausted: out of attempts; refused: the retry policy does not retry this error; '
    'undecodable: the arguments do not fit the task, or the database refused the row; asked: the task raised Dead; '
    'unknown: no worker has known the task for as long as unknown_after.';

-- A text as an instant; null where it is none, or none that a program can do sums with.
create function pgqueue.instant(said text) returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
    meant timestamptz;
begin
    meant := said;
    return case when meant between '1900-01-01 00:00+00' and '9000-01-01 00:00+00' then meant end;
exception when data_exception then
    return null;
end $$;

-- Puts due jobs in line, at most ``most``. Where the database refuses that, because of a queue's name that no index takes
-- or a trigger of a user's, it is done one by one, and the jobs that are refused are set aside: promoted + the number of
-- those refused is how many were due.
create function pgqueue.promote_due(due_by timestamptz, most integer, out promoted integer, out refused bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    job_id bigint;
    reason text;
begin
    refused := '{}';
    begin
        with due as (
            select id from pgqueue.jobs
            where status = 'scheduled' and run_at <= due_by
            order by run_at
            limit most
            for update skip locked
        )
        update pgqueue.jobs set status = 'ready'
        where id = any(array(select id from due));  -- no join: see complete
        get diagnostics promoted = row_count;
        return;
    exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
        promoted := 0;
    end;
    for job_id in
        select id from pgqueue.jobs
        where status = 'scheduled' and run_at <= due_by
        order by run_at
        limit most
        for update skip locked
    loop
        begin
            update pgqueue.jobs set status = 'ready' where id = job_id;
            promoted := promoted + 1;
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
            get stacked diagnostics reason = message_text;
            perform pgqueue.set_aside(job_id, reason, due_by);
            refused := refused || job_id;
        end;
    end loop;
end $$;

-- Takes a waiting job that the database refuses out of the way: dead as undecodable, or, where the dead table refuses it
-- as well, an hour later. The caller has the row locked.
create function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time)
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor buried (%): tried again in an hour', job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;
