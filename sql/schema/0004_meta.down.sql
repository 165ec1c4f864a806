-- Puts back the functions and the view of revision 0003, and drops the column with what it holds.

-- The tables that this revision and those before it change are asked for in short attempts, as on the way up.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.job_history, pgqueue.dead_jobs, pgqueue.jobs, pgqueue.workers, pgqueue.departed;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, job_history, dead_jobs, workers or departed open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

create function pgqueue.enqueue(
    task         text,
    args         jsonb       default '{}',
    queue        text        default 'default',
    priority     integer     default 0,
    run_at       timestamptz default null,
    max_attempts integer     default 25,
    unique_key   text        default null
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
    end if;
    loop
        insert into pgqueue.jobs as job (queue, task, args, priority, status, run_at, max_attempts, unique_key)
        values (enqueue.queue, enqueue.task, enqueue.args, enqueue.priority,
                case when enqueue.run_at > now() then 'scheduled' else 'ready' end,
                coalesce(enqueue.run_at, now()), enqueue.max_attempts, enqueue.unique_key)
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
    former constant regprocedure := 'pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text, jsonb)';
    latter constant regprocedure := 'pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text)';
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

create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
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

-- Columns of a view cannot be taken away, so a second one is made, with the owner and the rights of the first.
alter view pgqueue.all_jobs rename to all_jobs_with_meta;
create view pgqueue.all_jobs as
    select id, status::text as state, queue, task, pgqueue.as_jsonb(args) as args, priority::smallint, run_at, created_at,
           claimed_at as started_at, null::timestamptz as ended_at, attempts, max_attempts::smallint,
           unique_key, collisions, worker_id, errors,
           null::text as reason, null::jsonb as result
    from pgqueue.jobs
    union all
    select id, 'dead', queue, task, args, priority, run_at, created_at, started_at,
           died_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, reason, null
    from pgqueue.dead_jobs
    union all
    select id, outcome, queue, task, pgqueue.as_jsonb(args), priority, run_at, created_at, started_at,
           finished_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, null, result
    from pgqueue.job_history;
comment on view pgqueue.all_jobs is 'Every job there is a record of, live or ended, in one shape.';

do $$
declare
    former   constant regclass := 'pgqueue.all_jobs_with_meta';
    latter   constant regclass := 'pgqueue.all_jobs';
    right_to record;
begin
    for right_to in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name,
               privilege_type, is_grantable
        from pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) where pg_class.oid = former
    loop
        execute format('grant %s on %s to %s%s', right_to.privilege_type, latter, right_to.name,
                       case when right_to.is_grantable then ' with grant option' else '' end);
    end loop;
    if (select relowner from pg_class where oid = former) <> (select relowner from pg_class where oid = latter) then
        execute format('alter view %s owner to %s', latter,
                       (select quote_ident(pg_get_userbyid(relowner)) from pg_class where oid = former));
    end if;
    execute format('drop view %s', former);
end $$;

alter table pgqueue.jobs drop column meta;
alter table pgqueue.job_history drop column meta;
alter table pgqueue.dead_jobs drop column meta;
