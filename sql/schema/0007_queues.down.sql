-- Takes away the settings of queues, and what operators did. Paused queues stay paused; a drained one takes jobs.

drop trigger queues_resumed on pgqueue.queues;
drop function pgqueue.queue_resumed();
drop trigger queues_timeout on pgqueue.queues;
drop function pgqueue.queue_timeout_set();
drop function pgqueue.pause_queue;
drop function pgqueue.resume_queue;
drop function pgqueue.serves;
drop table pgqueue.audit;

drop function pgqueue.unkept_queues();

-- As in revision 0004.
create or replace function pgqueue.enqueue(
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

-- As in revision 0005.
create or replace function pgqueue.note_ticks(
    names text[], ats timestamptz[], run_ats timestamptz[], states text[], kinds text[], at_time timestamptz
) returns setof pgqueue.schedule_ticks language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    noted pgqueue.schedule_ticks[];
    added bigint[];
begin
    with changed as (
        insert into pgqueue.schedule_ticks as tick (schedule, at, fired_at, job_id, state, kind)
        select name, at, at_time, case when state = 'fired' then nextval('pgqueue.jobs_id_seq') end, state, kind
        from (select name, at, state, kind from unnest(names, ats, states, kinds) as new (name, at, state, kind)
              order by name, at) as new
        on conflict (schedule, at) do update
        set state = excluded.state, job_id = excluded.job_id, fired_at = excluded.fired_at, kind = excluded.kind
        where excluded.state = 'fired'
          and (tick.state = 'waiting' or (tick.state = 'skipped' and excluded.kind = 'backfill'))
        returning tick.*
    )
    select array_agg(changed::pgqueue.schedule_ticks) into noted from changed;
    with jobs as (
        insert into pgqueue.jobs (id, queue, task, args, priority, status, run_at, created_at, max_attempts, unique_key,
                                  unique_until_started, meta)
        select tick.job_id, schedule.queue, schedule.task, schedule.args, schedule.priority,
               case when new.run_at > at_time then 'scheduled' else 'ready' end, greatest(new.run_at, at_time), at_time,
               schedule.max_attempts, schedule.unique_key, schedule.unique_until_started,
               coalesce(schedule.meta, '{}')
                   || jsonb_build_object('pgqueue_schedule', schedule.name, 'pgqueue_scheduled_for', tick.at)
        from unnest(noted) as tick
        join unnest(names, ats, run_ats) as new (name, at, run_at) on new.name = tick.schedule and new.at = tick.at
        join pgqueue.schedules as schedule on schedule.name = tick.schedule
        where tick.job_id is not null
        order by tick.job_id
        on conflict (unique_key) where unique_key is not null do nothing
        returning id
    )
    select coalesce(array_agg(id), '{}') into added from jobs;
    if cardinality(added) < (select count(job_id) from unnest(noted)) then  -- a live job has the unique key
        update pgqueue.schedule_ticks as tick set state = 'skipped', job_id = null
        from unnest(noted) as new
        where tick.schedule = new.schedule and tick.at = new.at and new.job_id <> all(added);
    end if;
    update pgqueue.schedules as schedule
    set live_jobs = array(select id from pgqueue.jobs where id = any(schedule.live_jobs || tick.job_ids) order by id)
    from (select new.schedule, array_agg(new.job_id) as job_ids from unnest(noted) as new
          where new.job_id = any(added) group by new.schedule) as tick
    where schedule.name = tick.schedule and schedule.overlap <> 'allow';
    return query select new.schedule, new.at, new.fired_at, case when new.job_id = any(added) then new.job_id end,
                        case when new.job_id <> all(added) then 'skipped' else new.state end, new.kind
                 from unnest(noted) as new;
end $$;

update pgqueue.schedules set priority = coalesce(priority, 0), max_attempts = coalesce(max_attempts, 25)
where priority is null or max_attempts is null;
alter table pgqueue.schedules
    alter column priority set default 0, alter column priority set not null,
    alter column max_attempts set default 25, alter column max_attempts set not null;
comment on column pgqueue.schedules.priority is null;
comment on column pgqueue.schedules.max_attempts is null;

update pgqueue.sink_rows set priority = coalesce(priority, 0), max_attempts = coalesce(max_attempts, 25)
where priority is null or max_attempts is null;
alter table pgqueue.sink_rows alter column priority set not null, alter column max_attempts set not null;

-- As in revision 0003.
create or replace function pgqueue.drop_old_dead(at timestamptz, at_most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    span    constant interval := (select dead from pgqueue.retention);
    deleted integer := 0;
begin
    if span < interval '100000 days' then
        delete from pgqueue.dead_jobs
        where id = any(array(select id from pgqueue.dead_jobs where died_at < at - span
                             limit at_most for update skip locked));
        get diagnostics deleted = row_count;
    end if;
    return deleted;
end $$;

alter table pgqueue.queues
    drop column paused_by, drop column paused_why, drop column drained_at, drop column drained_by, drop column drained_why,
    drop column priority, drop column max_attempts, drop column timeout, drop column keep_history, drop column keep_dead,
    drop column set_at, drop column set_by;
