-- Schedules, and their ticks.

-- All that a worker needs to fire a schedule is in its row, so that a worker of any app can fire it. The bounds keep out
-- what Python cannot read: one row that cannot be read would fail the batch that it is in.
create table pgqueue.schedules (
    name                 text              primary key check (length(name) between 1 and 200),
    module               text,
    created_at           timestamptz       not null default now(),
    task                 text              not null,
    queue                text              not null default 'default',
    args                 pgqueue.arguments not null default '{}',
    priority             pgqueue.priority,
    max_attempts         pgqueue.allowance,
    expires_in           interval          check (expires_in > '0'),
    unique_key           text,
    unique_until_started boolean           not null default false,
    meta                 jsonb,
    cron                 text,
    every                interval          check (every between '1 second' and '3650 days'),
    at                   timestamptz       check (at between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    timezone             text              not null default 'UTC',
    anchor               timestamptz       check (anchor between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    start_at             timestamptz       check (start_at between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    end_at               timestamptz       check (end_at between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    gap                  text,
    repeat               text,
    jitter               interval          not null default '0' check (jitter between '0' and '1 day'),
    missed               text              not null default 'latest',
    missed_limit         integer           not null default 100,
    tolerance                interval          not null default '60 seconds' check (tolerance between '0' and '1 hour'),
    overlap              text              not null default 'allow',
    settled              timestamptz       not null default now()
                                           check (settled between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    next_at              timestamptz       default now()
                                           check (next_at between '1900-01-01 00:00+00' and '9000-01-01 00:00+00'),
    live_jobs            bigint[]          not null default '{}',
    paused_at            timestamptz,
    paused_by            text,
    failed_at            timestamptz,
    error                text,
    check (num_nonnulls(cron, every, at) = 1)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
comment on table pgqueue.schedules is 'Schedules: when jobs are to be enqueued, and which.';
comment on column pgqueue.schedules.name is 'What it is called.';
comment on column pgqueue.schedules.created_at is 'When it was added.';
comment on column pgqueue.schedules.cron is 'A cron expression. Exactly one of cron, every and at is not null.';
comment on column pgqueue.schedules.every is 'The time between two ticks.';
comment on column pgqueue.schedules.at is 'The instant of the only tick.';
comment on column pgqueue.schedules.timezone is 'The time zone of cron.';
comment on column pgqueue.schedules.anchor is 'An instant at which every has a tick.';
comment on column pgqueue.schedules.start_at is 'No tick is earlier.';
comment on column pgqueue.schedules.end_at is 'No tick is later.';
comment on column pgqueue.schedules.gap is 'What becomes of a tick at a time that a clock change leaves out: skip or shift.';
comment on column pgqueue.schedules.repeat is 'How often a tick fires at a time that a clock change repeats: once or twice.';
comment on column pgqueue.schedules.jitter is 'Each job waits for up to this long after its tick.';
comment on column pgqueue.schedules.missed is 'Which missed ticks fire: latest, skip or all.';
comment on column pgqueue.schedules.missed_limit is 'How many missed ticks fire at most.';
comment on column pgqueue.schedules.tolerance is 'How late a tick may fire and not count as missed.';
comment on column pgqueue.schedules.overlap is 'What becomes of a tick while an earlier job has not ended: allow, skip or queue.';
comment on column pgqueue.schedules.paused_at is 'Since when it is paused; null: it is not.';
comment on column pgqueue.schedules.paused_by is 'By whom.';
comment on column pgqueue.schedules.failed_at is
    'When it was set aside, because its rule does not parse or the database refused its jobs; null: it was not.';
comment on column pgqueue.schedules.module is 'The module that declares it; null: it was made at run time.';
comment on column pgqueue.schedules.priority is 'Of its jobs; null: as their queue says.';
comment on column pgqueue.schedules.max_attempts is 'Of its jobs; null: as their queue says.';
comment on column pgqueue.schedules.expires_in is
    'For how long a job of a tick may wait from the time when it may start; null: for as long as it takes.';
comment on column pgqueue.schedules.settled is 'Up to this instant, included, it is decided which ticks fire.';
comment on column pgqueue.schedules.next_at is 'When a worker looks at it next; null: it has no further tick.';
comment on column pgqueue.schedules.live_jobs is 'Its jobs that had not ended at the last look; kept only where overlap is not allow.';
comment on column pgqueue.schedules.error is 'Why it was set aside; no worker looks at it until it is changed or resumed. Null: it was not.';
create index schedules_next on pgqueue.schedules (next_at) where paused_at is null and error is null;
create index schedules_module on pgqueue.schedules (module) where module is not null;

-- A tick is this row, and not its job: jobs are deleted. By the name and not by a number of the schedule: a schedule that is
-- removed and added again does not fire its ticks again.
create table pgqueue.schedule_ticks (
    schedule text        not null,
    at       timestamptz not null,
    fired_at timestamptz not null default now(),
    job_id   bigint,
    state    text        not null check (state in ('fired', 'waiting', 'skipped')),
    kind     text        not null default 'tick' check (kind in ('tick', 'manual', 'backfill')),
    primary key (schedule, at)
);
comment on table pgqueue.schedule_ticks is 'Ticks of schedules that were decided on: each at most once. Kept for 30 days.';
comment on column pgqueue.schedule_ticks.schedule is 'The name of the schedule.';
comment on column pgqueue.schedule_ticks.at is 'The tick.';
comment on column pgqueue.schedule_ticks.fired_at is 'When it was decided on.';
comment on column pgqueue.schedule_ticks.job_id is 'Its job; null: there is none.';
comment on column pgqueue.schedule_ticks.kind is 'tick; manual: a caller fired it; backfill.';
comment on column pgqueue.schedule_ticks.state is
    'fired: job_id was enqueued; waiting: until the job before it ends; skipped: an earlier job had not ended.';
create index schedule_ticks_fired_at on pgqueue.schedule_ticks (fired_at);
create index schedule_ticks_waiting on pgqueue.schedule_ticks (schedule, at) where state = 'waiting';

-- Another rule, by any statement: what is past is decided, and a worker looks at the schedule anew.
-- callers: trigger
create function pgqueue.schedule_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if (new.cron, new.every, new.at, new.timezone, new.anchor, new.start_at, new.end_at, new.gap, new.repeat)
       is distinct from (old.cron, old.every, old.at, old.timezone, old.anchor, old.start_at, old.end_at, old.gap, old.repeat)
       and new.settled = old.settled and new.next_at is not distinct from old.next_at then
        new.settled := now();
        new.next_at := now();
    end if;
    if new.error is not distinct from old.error then  -- what was wrong may be right now
        new.error := null;
        new.failed_at := null;
        if old.error is not null then
            new.next_at := least(new.next_at, now());
        end if;
    end if;
    return new;
end $$;
create trigger schedules_changed before update of cron, every, at, timezone, anchor, start_at, end_at, gap, repeat, missed,
    missed_limit, tolerance, overlap, jitter, task, queue, args, priority, max_attempts, unique_key, meta on pgqueue.schedules
    for each row execute function pgqueue.schedule_changed();

-- While overlap is allow, nothing asks which jobs of a schedule are live. When it is changed, those of its latest ticks are
-- found, so that the next tick does not overlap them.
-- callers: trigger
create function pgqueue.find_live_jobs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.live_jobs := array(
        select job.id
        from (select job_id from pgqueue.schedule_ticks where schedule = new.name and job_id is not null
              order by at desc limit 1000) as tick
        join pgqueue.jobs as job on job.id = tick.job_id
        order by job.id);
    return new;
end $$;
create trigger schedules_overlap before update of overlap on pgqueue.schedules
    for each row when (old.overlap = 'allow' and new.overlap <> 'allow') execute function pgqueue.find_live_jobs();
create trigger schedules_added before insert on pgqueue.schedules  -- one of this name may have been removed
    for each row when (new.overlap <> 'allow') execute function pgqueue.find_live_jobs();

-- Notes ticks and adds their jobs. A tick that was noted before does nothing, unless it waits and is to fire now; backfilling
-- fires one that was skipped. Ticks fire in closed queues, too: to stop them, pause the schedule.
-- callers: worker, operator
create function pgqueue.note_ticks(
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

-- As note_ticks, for manual runs and backfills; a schedule whose ticks the database refuses does not keep back the others: the
-- answer says why.
-- callers: worker, operator
create function pgqueue.fire_ticks(
    names text[], ats timestamptz[], run_ats timestamptz[], states text[], kinds text[], at_time timestamptz
) returns table (schedule text, at timestamptz, job_id bigint, state text, refused text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    noted pgqueue.schedule_ticks[];
    one   record;
begin
    begin
        select array_agg(tick) into noted
        from pgqueue.note_ticks(names, ats, run_ats, states, kinds, at_time) as tick;
        return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        return;
    exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
        null;  -- one of them: each by itself
    end;
    for one in
        select name, array_agg(new.at) as ats, array_agg(run_at) as run_ats, array_agg(new.state) as states, array_agg(kind) as kinds
        from unnest(names, ats, run_ats, states, kinds) as new (name, at, run_at, state, kind) group by name order by name
    loop
        begin
            select array_agg(tick) into noted
            from pgqueue.note_ticks(array_fill(one.name, array[cardinality(one.ats)]), one.ats, one.run_ats, one.states,
                                    one.kinds, at_time) as tick;
            return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
            return query select one.name, null::timestamptz, null::bigint, null::text, sqlerrm;
        end;
    end loop;
end $$;
comment on function pgqueue.fire_ticks is
    'Notes ticks of schedules, each at most once, and adds their jobs; a schedule that the database refuses is returned with why.';

-- As fire_ticks, for schedules that are due, with two differences: one that the database refuses, or that waits for another
-- transaction, delays no other one. Any error that a trigger raises is the error of its schedule, not only errors of four
-- classes. And a tick whose job waits for another transaction, which holds the unique key and has not ended, is not waited
-- for: its state is 'busy', and nothing is noted of it. What ends the whole statement is what is wrong with the server or the
-- transaction: connections, resources, a deadlock, a cancellation.
-- callers: worker
create function pgqueue.fire_due_ticks(
    names text[], ats timestamptz[], run_ats timestamptz[], states text[], kinds text[], at_time timestamptz
) returns table (schedule text, at timestamptz, job_id bigint, state text, refused text)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '300ms' as $$
declare
    noted pgqueue.schedule_ticks[];
    one   record;
    waits integer := 0;
begin
    begin
        select array_agg(tick) into noted
        from pgqueue.note_ticks(names, ats, run_ats, states, kinds, at_time) as tick;
        return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        return;
    exception when others or assert_failure then
        null;  -- one of them: each by itself
    end;
    perform set_config('lock_timeout', '50ms', true);
    for one in
        select name, array_agg(new.at) as ats, array_agg(run_at) as run_ats, array_agg(new.state) as states, array_agg(kind) as kinds
        from unnest(names, ats, run_ats, states, kinds) as new (name, at, run_at, state, kind) group by name order by name
    loop
        begin
            select array_agg(tick) into noted
            from pgqueue.note_ticks(array_fill(one.name, array[cardinality(one.ats)]), one.ats, one.run_ats, one.states,
                                    one.kinds, at_time) as tick;
            return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        exception
            when lock_not_available then
                waits := waits + 1;
                if waits = 4 then  -- one transaction may hold the keys of a hundred: they are not waited for one after the other
                    perform set_config('lock_timeout', '1ms', true);
                end if;
                return query select one.name, null::timestamptz, null::bigint, 'busy', null::text;
            when others or assert_failure then
                if left(sqlstate, 2) in ('08', '25', '40', '53', '57', '58') then
                    raise;
                end if;
                return query select one.name, null::timestamptz, null::bigint, null::text, sqlerrm;
        end;
    end loop;
end $$;

-- For SQL and other languages: adds a schedule, or changes the one of this name. A worker computes its ticks, and sets it
-- aside if the expression does not parse.
-- callers: worker, operator
create function pgqueue.schedule(
    name         text,
    task         text,
    args         jsonb       default '{}',
    cron         text        default null,
    every        interval    default null,
    at           timestamptz default null,
    timezone     text        default 'UTC',
    queue        text        default 'default',
    priority     integer     default 0,
    max_attempts integer     default 25,
    start_at     timestamptz default null,
    end_at       timestamptz default null,
    missed       text        default 'latest',
    overlap      text        default 'allow'
) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    declared_in text;
begin
    perform pgqueue.check_name('task', schedule.task), pgqueue.check_name('queue', schedule.queue);
    if num_nonnulls(schedule.cron, schedule.every, schedule.at) <> 1 then
        raise check_violation using message = 'give exactly one of cron, every and at';
    elsif length(schedule.cron) > 200 or schedule.cron !~ '^\s*(@[a-z]+|(\S+\s+){4,5}\S+)\s*$' then
        raise check_violation using message = format('cron => %L: use 5 fields, or 6 with seconds first, or @daily', left(schedule.cron, 60));
    elsif schedule.timezone is null then
        raise check_violation using message = 'timezone => NULL: name a time zone, such as Europe/London';
    elsif schedule.missed is null or schedule.missed not in ('skip', 'latest', 'all') then
        raise check_violation using message = format('missed => %L: use skip, latest or all', schedule.missed);
    elsif schedule.overlap is null or schedule.overlap not in ('allow', 'skip', 'queue') then
        raise check_violation using message = format('overlap => %L: use allow, skip or queue', schedule.overlap);
    elsif schedule.at <= now() then
        raise check_violation using message = format('at => %L: this instant has passed', schedule.at);
    elsif octet_length(schedule.args::text) > 1048576 then
        raise check_violation using
            message = format('args: they take %s bytes, over the limit of 1048576', octet_length(schedule.args::text));
    elsif not pgqueue.arguments_fit(schedule.args::text::json) then
        raise check_violation using message = 'args: use at most 200 levels, and whole numbers of at most 4300 digits';
    end if;
    perform now() at time zone schedule.timezone;  -- raises, where there is no such zone
    select module into declared_in from pgqueue.schedules as known where known.name = schedule.name;
    if declared_in is not null then
        raise unique_violation using
            message = format('name => %L: module %s declares this schedule', schedule.name, declared_in),
            hint = 'Change it there, or use another name.';
    end if;
    insert into pgqueue.schedules as known (name, task, args, cron, every, at, timezone, queue, priority, max_attempts, start_at,
                                            end_at, missed, overlap)
    values (schedule.name, schedule.task, schedule.args, schedule.cron, schedule.every, schedule.at, schedule.timezone,
            schedule.queue, schedule.priority, schedule.max_attempts, schedule.start_at, schedule.end_at, schedule.missed,
            schedule.overlap)
    on conflict on constraint schedules_pkey do update
    set task = excluded.task, args = excluded.args, cron = excluded.cron, every = excluded.every, at = excluded.at,
        timezone = excluded.timezone, queue = excluded.queue, priority = excluded.priority,
        max_attempts = excluded.max_attempts, start_at = excluded.start_at, end_at = excluded.end_at,
        missed = excluded.missed, overlap = excluded.overlap;
end $$;
comment on function pgqueue.schedule is 'Adds a schedule, or changes the one of this name. Give exactly one of cron, every and at.';
