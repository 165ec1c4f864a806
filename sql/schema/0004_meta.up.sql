-- A column for what only passes through a job's life: trace context, tags, the parent job, the id of a key.

-- A column without a default, and which may be null, is added without reading or writing a row. The tables are asked for
-- in short attempts, as in revision 0002, so that workers and enqueuers go on while another transaction has one open.
-- Revision 0005 changes pgqueue.workers. An upgrade may run both in one transaction, and a claim that waits for jobs has
-- workers open: so the lock on both is taken here, at once.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.job_history, pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.queues;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, job_history, dead_jobs or workers open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

-- The bounds (an object, 8 kB) are checked by the function below and by Python, not by the tables: see ADR 16.
alter table pgqueue.jobs add column meta jsonb;
alter table pgqueue.job_history add column meta jsonb;
alter table pgqueue.dead_jobs add column meta jsonb;
comment on column pgqueue.jobs.meta is
    'What the enqueuer sends along for other programs: an object of at most 8 kB. pgqueue stores it and does not read it.';
comment on column pgqueue.job_history.meta is 'As in jobs.';
comment on column pgqueue.dead_jobs.meta is 'As in jobs.';

create or replace view pgqueue.all_jobs as
    select id, status::text as state, queue, task, pgqueue.as_jsonb(args) as args, priority::smallint, run_at, created_at,
           claimed_at as started_at, null::timestamptz as ended_at, attempts, max_attempts::smallint,
           unique_key, collisions, worker_id, errors,
           null::text as reason, null::jsonb as result, meta
    from pgqueue.jobs
    union all
    select id, 'dead', queue, task, args, priority, run_at, created_at, started_at,
           died_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, reason, null, meta
    from pgqueue.dead_jobs
    union all
    select id, outcome, queue, task, pgqueue.as_jsonb(args), priority, run_at, created_at, started_at,
           finished_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, null, result, meta
    from pgqueue.job_history;

-- The function of revision 0003 with one more argument. A function's arguments cannot be changed, so a second one is made,
-- with the owner and the rights of the first, which is then dropped.
create function pgqueue.enqueue(
    task         text,
    args         jsonb       default '{}',
    queue        text        default 'default',
    priority     integer     default 0,
    run_at       timestamptz default null,
    max_attempts integer     default 25,
    unique_key   text        default null,
    meta         jsonb       default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    job_id bigint;
begin
    perform pgqueue.check_name('task', enqueue.task), pgqueue.check_name('queue', enqueue.queue);
    if enqueue.priority is null or enqueue.priority not between -100 and 100 then
        raise check_violation using message = format('priority => %s: use a whole number from -100 to 100', enqueue.priority);
    elsif enqueue.max_attempts is null or enqueue.max_attempts not between 1 and 32767 then
        raise check_violation using
            message = format('max_attempts => %s: use a whole number from 1 to 32767', enqueue.max_attempts);
    elsif enqueue.run_at < '1900-01-01 00:00+00' or enqueue.run_at >= '9000-01-01 00:00+00' then
        raise check_violation using message = format('run_at => %L: use a time in the years 1900 to 8999', enqueue.run_at);
    elsif enqueue.unique_key = '' or char_length(enqueue.unique_key) > 1000 or octet_length(enqueue.unique_key) > 2600 then
        raise check_violation using
            message = format('unique_key => %L: use 1 to 1000 characters and at most 2600 bytes', left(enqueue.unique_key, 60)),
            hint = 'Hash what is longer: md5(...), or encode(sha256(...), ''hex'').';
    elsif enqueue.args is null or jsonb_typeof(enqueue.args) <> 'object' then
        raise check_violation using
            message = format('args => %L: use one JSON object, a key for each parameter', left(enqueue.args::text, 60));
    elsif not pgqueue.arguments_fit(enqueue.args::text::json) then
        raise check_violation using
            message = 'args: use at most 200 levels, and whole numbers of at most 4300 digits',
            hint = 'Store them elsewhere and enqueue a reference, or write a long number as a string.';
    elsif enqueue.meta is not null and (jsonb_typeof(enqueue.meta) <> 'object' or octet_length(enqueue.meta::text) > 8192
                                        or not pgqueue.arguments_fit(enqueue.meta::text::json)) then
        raise check_violation using
            message = format('meta => %L: use one JSON object of at most 8192 bytes, at most 200 levels, and whole numbers '
                             'of at most 4300 digits', left(enqueue.meta::text, 60)),
            hint = 'Store what is larger elsewhere and send a reference along.';
    end if;
    loop
        insert into pgqueue.jobs as job (queue, task, args, priority, status, run_at, max_attempts, unique_key, meta)
        values (enqueue.queue, enqueue.task, enqueue.args, enqueue.priority,
                case when enqueue.run_at > now() then 'scheduled' else 'ready' end,
                coalesce(enqueue.run_at, now()), enqueue.max_attempts, enqueue.unique_key, enqueue.meta)
        on conflict do nothing
        returning job.id into job_id;
        exit when job_id is not null;
        update pgqueue.jobs as job set collisions = job.collisions + 1
        where job.unique_key = enqueue.unique_key
        returning job.id into job_id;
        exit when job_id is not null;  -- else the holder ended between the two statements: once more
    end loop;
    return job_id;
end $$;

do $$
declare
    former constant regprocedure := 'pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text)';
    latter constant regprocedure := 'pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text, jsonb)';
    right_to record;
begin
    execute format('revoke execute on function %s from public', latter);
    for right_to in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name, is_grantable
        from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) where oid = former
    loop
        execute format('grant execute on function %s to %s%s', latter, right_to.name,
                       case when right_to.is_grantable then ' with grant option' else '' end);
    end loop;
    if (select proowner from pg_proc where oid = former) <> (select proowner from pg_proc where oid = latter) then
        execute format('alter function %s owner to %s', latter,
                       (select quote_ident(pg_get_userbyid(proowner)) from pg_proc where oid = former));
    end if;
    execute format('drop function %s', former);
end $$;

-- As in revision 0003, and what the job sends along goes with it.
create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors, meta)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time), meta
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor moved to the dead jobs (%): tried again in an hour',
        job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;
