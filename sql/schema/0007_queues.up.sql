-- Settings of queues, who paused them and why, and what operators did.

-- Columns without a default, and which may be null: a queue that has a row and no settings is as before. The table has a row
-- for each queue that was paused or given settings.
alter table pgqueue.queues
    add column paused_by    text,
    add column paused_why   text,
    add column drained_at   timestamptz,
    add column drained_by   text,
    add column drained_why  text,
    add column priority     pgqueue.priority,
    add column max_attempts pgqueue.allowance,
    add column timeout      interval check (timeout > '0'),
    add column keep_history boolean,
    add column keep_dead    interval check (keep_dead >= '0'),
    add column set_at       timestamptz,
    add column set_by       text;
comment on column pgqueue.queues.paused_by is 'Who paused it, for people to read.';
comment on column pgqueue.queues.paused_why is 'Why, for people to read.';
comment on column pgqueue.queues.drained_at is 'Since when enqueues to it are refused; null: they are not. Its jobs run.';
comment on column pgqueue.queues.drained_by is 'Who drained it, for people to read.';
comment on column pgqueue.queues.drained_why is 'Why, for people to read.';
comment on column pgqueue.queues.priority is 'Of jobs whose enqueue and task name none; null: 0.';
comment on column pgqueue.queues.max_attempts is 'Of jobs whose enqueue and task name none; null: 25.';
comment on column pgqueue.queues.timeout is 'How long an attempt may take whose task names no timeout; null: as long as it likes.';
comment on column pgqueue.queues.keep_history is 'False: jobs that succeed are not kept; null or true: as pgqueue.retention says.';
comment on column pgqueue.queues.keep_dead is 'For how long its dead jobs are kept; null: as pgqueue.retention says.';
comment on column pgqueue.queues.set_at is 'When these settings were stored last.';
comment on column pgqueue.queues.set_by is 'Who stored them, for people to read.';

-- What operators do to queues: a row for each time.
create table pgqueue.audit (
    id      bigint      generated always as identity primary key,
    at      timestamptz not null default now(),
    said_by text,
    action  text        not null,
    target  text        not null,
    details jsonb,
    jobs    bigint
);
comment on table pgqueue.audit is 'What operators did to queues: who, when, what, and to how many jobs.';
comment on column pgqueue.audit.target is 'The queue, or the pattern that was given.';

-- A queue is resumed, by pgqueue or by an update of this table: idle workers are notified, and the name and the reason of the
-- pause are removed, so that they do not stay when a worker of revision 0006 pauses the queue again.
create function pgqueue.queue_resumed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.paused_at is null then
        new.paused_by := null;
        new.paused_why := null;
        perform pg_notify(tg_table_schema || '.wake', '') where exists (select from pgqueue.workers where asleep);
    end if;
    if new.drained_at is null then
        new.drained_by := null;
        new.drained_why := null;
    end if;
    return new;
end $$;
create trigger queues_resumed before update of paused_at, drained_at on pgqueue.queues
    for each row when (old.paused_at is not null or old.drained_at is not null) execute function pgqueue.queue_resumed();

-- Workers read timeouts with each poll; an idle one polls every few seconds, so it is told to.
create function pgqueue.queue_timeout_set() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('pgqueue.wake', 'flow');
    return null;
end $$;
create trigger queues_timeout after update of timeout on pgqueue.queues
    for each row when (old.timeout is distinct from new.timeout) execute function pgqueue.queue_timeout_set();

-- Whether a worker with these --queues serves a queue: names, patterns in which * stands for any characters, and with a ! before
-- them those that it does not serve. Null: it serves all. The same rule as in pgqueue/values/serving.py.
create function pgqueue.serves(queues text[], queue text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select queues is null or (
        coalesce(bool_or(stands) filter (where not excludes), bool_and(excludes)) and not coalesce(bool_or(stands) filter (where excludes), false))
    from (select excludes, queue like replace(replace(replace(replace(name, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') as stands
          from (select left(entry, 1) = '!' as excludes, ltrim(entry, '!') as name from unnest(queues) as entry) as said) as matched
$$;

-- From other languages: pause and resume one queue; to pause several, select it from those that you mean.
create function pgqueue.pause_queue(queue text, why text default null, said_by text default session_user) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    changed boolean;
begin
    perform pgqueue.check_name('queue', pause_queue.queue);
    insert into pgqueue.queues as known (name, paused_at, paused_by, paused_why)
    values (pause_queue.queue, now(), pause_queue.said_by, pause_queue.why)
    on conflict (name) do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why
    where known.paused_at is null;
    changed := found;
    if changed then
        insert into pgqueue.audit (said_by, action, target, details)
        values (pause_queue.said_by, 'pause', pause_queue.queue, jsonb_build_object('why', pause_queue.why));
    end if;
    return changed;
end $$;
comment on function pgqueue.pause_queue is 'Workers claim no more of its jobs; false: it was paused.';
create function pgqueue.resume_queue(queue text, said_by text default session_user) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    changed boolean;
begin
    update pgqueue.queues set paused_at = null, drained_at = null
    where name = resume_queue.queue and (paused_at is not null or drained_at is not null);
    changed := found;
    if changed then
        insert into pgqueue.audit (said_by, action, target) values (resume_queue.said_by, 'resume', resume_queue.queue);
    end if;
    return changed;
end $$;
comment on function pgqueue.resume_queue is 'Workers claim its jobs again, and it takes new ones; false: it was neither paused nor drained.';

-- As in revision 0004; and what neither the caller nor the defaults of the function say is said by the queue.
create or replace function pgqueue.enqueue(
    task         text,
    args         jsonb       default '{}',
    queue        text        default 'default',
    priority     integer     default null,
    run_at       timestamptz default null,
    max_attempts integer     default null,
    unique_key   text        default null,
    meta         jsonb       default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    job_id  bigint;
    setting pgqueue.queues;
begin
    perform pgqueue.check_name('task', enqueue.task), pgqueue.check_name('queue', enqueue.queue);
    if enqueue.priority not between -100 and 100 then
        raise check_violation using message = format('priority => %s: use a whole number from -100 to 100', enqueue.priority);
    elsif enqueue.max_attempts not between 1 and 32767 then
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
    select * into setting from pgqueue.queues where name = enqueue.queue;
    if setting.drained_at is not null then
        raise check_violation using
            message = format('queue => %L: this queue is drained, it takes no new jobs', enqueue.queue),
            hint = 'pgqueue.queues says who drained it and why; pgqueue.resume_queue ends it.';
    elsif setting.backlog is not null and exists (
        select from (select from pgqueue.jobs as job where job.queue = enqueue.queue and job.status = 'ready'
                     union all
                     select from pgqueue.jobs as job where job.queue = enqueue.queue and job.in_lane) as ready
        offset setting.backlog - 1 limit 1) then
        if setting.when_full = 'refuse' then
            raise check_violation using
                message = format('queue => %L: this queue has no room, its bound is %s ready jobs', enqueue.queue, setting.backlog),
                hint = 'Enqueue again when workers have caught up, or raise the bound: pgqueue queues set --backlog.';
        end if;
        raise warning 'pgqueue: queue % is full, its bound is % ready jobs', enqueue.queue, setting.backlog;
    end if;
    loop
        insert into pgqueue.jobs as job (queue, task, args, priority, status, run_at, max_attempts, unique_key, meta)
        values (enqueue.queue, enqueue.task, enqueue.args, coalesce(enqueue.priority, setting.priority, 0),
                case when enqueue.run_at > now() then 'scheduled' else 'ready' end,
                coalesce(enqueue.run_at, now()), coalesce(enqueue.max_attempts, setting.max_attempts, 25),
                enqueue.unique_key, enqueue.meta)
        on conflict do nothing
        returning job.id into job_id;
        exit when job_id is not null;
        update pgqueue.jobs as job set collisions = job.collisions + 1
        where job.unique_key = enqueue.unique_key
        returning job.id into job_id;
        exit when job_id is not null;  -- else the holder ended between the two statements: once more
    end loop;
    if exists (select from pgqueue.limited_tasks as limited where limited.task = enqueue.task) then
        perform pgqueue.put_in_lanes(array[job_id]);
    end if;
    return job_id;
end $$;

-- Schedules whose task names neither leave it to the queue. Ticks fire in drained queues, too: to stop them, pause the schedule.
alter table pgqueue.schedules
    alter column priority drop not null, alter column priority drop default,
    alter column max_attempts drop not null, alter column max_attempts drop default;
comment on column pgqueue.schedules.priority is 'Of its jobs; null: as their queue says.';
comment on column pgqueue.schedules.max_attempts is 'Of its jobs; null: as their queue says.';

-- As in revision 0005, with what the queue says, and until when the job has to be started.
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
                                  unique_until_started, meta, expires_at)
        select tick.job_id, schedule.queue, schedule.task, schedule.args,
               coalesce(schedule.priority, setting.priority, 0),
               case when new.run_at > at_time then 'scheduled' else 'ready' end, greatest(new.run_at, at_time), at_time,
               coalesce(schedule.max_attempts, setting.max_attempts, 25), schedule.unique_key, schedule.unique_until_started,
               coalesce(schedule.meta, '{}')
                   || jsonb_build_object('pgqueue_schedule', schedule.name, 'pgqueue_scheduled_for', tick.at),
               greatest(new.run_at, at_time) + schedule.expires_in
        from unnest(noted) as tick
        join unnest(names, ats, run_ats) as new (name, at, run_at) on new.name = tick.schedule and new.at = tick.at
        join pgqueue.schedules as schedule on schedule.name = tick.schedule
        left join pgqueue.queues as setting on setting.name = schedule.queue
        where tick.job_id is not null
        order by tick.job_id
        on conflict (unique_key) where unique_key is not null do nothing
        returning id
    )
    select coalesce(array_agg(id), '{}') into added from jobs;
    perform pgqueue.put_in_lanes(added);
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

-- As in revision 0003, with the time for which the job's queue keeps its dead jobs.
create or replace function pgqueue.drop_old_dead(at timestamptz, at_most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    span    constant interval := (select dead from pgqueue.retention);
    deleted integer := 0;
begin
    if span < interval '100000 days' or exists (select from pgqueue.queues where keep_dead < interval '100000 days') then
        delete from pgqueue.dead_jobs
        where id = any(array(
            select dead.id
            from pgqueue.dead_jobs as dead left join pgqueue.queues as setting on setting.name = dead.queue
            where coalesce(setting.keep_dead, span) < interval '100000 days'
              and dead.died_at < at - coalesce(setting.keep_dead, span)
            limit at_most for update of dead skip locked));
        get diagnostics deleted = row_count;
    end if;
    return deleted;
end $$;

-- The queues of which the history keeps no job that succeeded. With the owner's rights, as history_args. Each batch of ends
-- asks: plpgsql keeps the plan for the session, and the index has no entries where every queue keeps its history.
create index queues_not_kept on pgqueue.queues (name) where not keep_history;
create function pgqueue.unkept_queues() returns text[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return array(select name from pgqueue.queues where not keep_history);
end $$;

-- Staged rows that leave priority or attempts to their queue, until they are enqueued.
alter table pgqueue.sink_rows alter column priority drop not null, alter column max_attempts drop not null;
