-- Puts back what kept the queue in order before: the functions as revisions 0001 and 0002 made them, for everyone.

-- The tables that this part and those after it change are asked for in short attempts, as on the way up: workers and
-- enqueues go on while another transaction has one of them open.
do $$
declare
    before constant text := current_setting('lock_timeout');
begin
    for attempt in 1 .. 120 loop
        begin
            perform set_config('lock_timeout', '200ms', true);
            lock table pgqueue.jobs, pgqueue.dead_jobs, pgqueue.workers, pgqueue.departed;
            perform set_config('lock_timeout', before, true);
            return;
        exception when lock_not_available then
            perform pg_sleep(0.3);
        end;
    end loop;
    raise lock_not_available using
        message = 'another transaction has kept pgqueue.jobs, dead_jobs, workers or departed open for a minute',
        hint = 'Nothing was changed. End it (pg_locks and pg_stat_activity say whose it is), then migrate again.';
end $$;

do $$
declare
    one record;
begin
    for one in
        select oid::regprocedure as name from pg_proc
        where pronamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass)
    loop
        execute format('alter function %s reset all', one.name);
        execute format('alter function %s security invoker', one.name);
        execute format('grant execute on function %s to public', one.name);
    end loop;
end $$;

create or replace function pgqueue.ensure_history_days(first_day date, last_day date) returns integer language plpgsql as $$
declare
    day       date;
    child_name text;
    made      integer := 0;
begin
    perform pg_advisory_xact_lock(hashtext('pgqueue.job_history'));
    for day in select d::date from generate_series(first_day::timestamp, last_day::timestamp, '1 day') d loop
        child_name := 'job_history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('pgqueue.' || child_name) is not null;
        execute format('create table pgqueue.%I (like pgqueue.job_history including all)', child_name);
        execute format(
            'with stray as (delete from pgqueue.job_history_default
                            where finished_at >= %1$L and finished_at < %2$L returning *)
             insert into pgqueue.%3$I select * from stray',
            day || ' 00:00+00', day + 1 || ' 00:00+00', child_name);
        execute format('alter table pgqueue.job_history attach partition pgqueue.%I for values from (%L) to (%L)',
                       child_name, day || ' 00:00+00', day + 1 || ' 00:00+00');
        made := made + 1;
    end loop;
    return made;
end $$;

create or replace function pgqueue.gather_history_day(day date) returns boolean language plpgsql as $$
begin
    perform set_config('lock_timeout', '200ms', true);
    if pgqueue.history_partition(day) is null
       and exists (select from pgqueue.job_history_default
                   where finished_at >= day::timestamp at time zone 'UTC'
                     and finished_at < (day + 1)::timestamp at time zone 'UTC') then
        perform pgqueue.ensure_history_days(day, day);
    end if;
    return true;
exception when lock_not_available then
    return false;
end $$;

create or replace function pgqueue.hold_history_day(day date) returns boolean language plpgsql as $$
begin
    if pgqueue.history_partition(day) is null then
        return null;
    end if;
    perform set_config('lock_timeout', '5s', true);
    execute format('lock table %s in share mode', pgqueue.history_partition(day));
    return true;
exception when lock_not_available then
    return false;
end $$;

create or replace function pgqueue.drop_history_day(day date) returns boolean language plpgsql as $$
begin
    perform set_config('lock_timeout', '200ms', true);
    execute format('drop table %s', pgqueue.history_partition(day));
    update pgqueue.lake_days as known set pruned_below = known.below where known.day = drop_history_day.day;
    return true;
exception when lock_not_available then
    return false;
end $$;

create or replace function pgqueue.is_history_day_out(day date) returns boolean language plpgsql as $$
declare
    verified_below bigint;
    late           boolean;
begin
    if not exists (select from pgqueue.lake_days) then
        return true;
    end if;
    if not pgqueue.hold_history_day(day) then
        return false;
    end if;
    select known.below into verified_below from pgqueue.lake_days as known where known.day = is_history_day_out.day;
    execute format('select exists (select from %s where ended_in >= $1)', pgqueue.history_partition(day))
        into late using coalesce(verified_below, 0);
    return not late;
end $$;

create or replace function pgqueue.drop_history_before(first_kept date) returns integer language plpgsql as $$
declare
    day     date;
    dropped integer := 0;
begin
    for day in
        select to_date(right(child.relname, 8), 'YYYYMMDD') as of_day
        from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'pgqueue.job_history'::regclass
          and child.relname ~ '^job_history_\d{8}$'
          and to_date(right(child.relname, 8), 'YYYYMMDD') < first_kept
        order by of_day
    loop
        continue when not pgqueue.is_history_day_out(day);
        exit when not pgqueue.drop_history_day(day);
        dropped := dropped + 1;
    end loop;
    delete from pgqueue.former_workers
    where ended_at < first_kept::timestamp at time zone 'UTC'
      and not exists (select from pg_inherits join pg_class child on child.oid = inhrelid
                      where inhparent = 'pgqueue.job_history'::regclass
                        and child.relname ~ '^job_history_\d{8}$'
                        and to_date(right(child.relname, 8), 'YYYYMMDD') < first_kept);
    return dropped;
end $$;

drop function pgqueue.drop_old_dead(timestamptz, integer), pgqueue.drop_old_strays(timestamptz, integer),
              pgqueue.drop_old_history(timestamptz), pgqueue.drop_history_days(date), pgqueue.make_history_day(date),
              pgqueue.first_day_kept(timestamptz), pgqueue.keep_for(interval, interval, text),
              pgqueue.free_id(), pgqueue.with_error(jsonb, jsonb, timestamptz);
drop table pgqueue.retention;
alter table pgqueue.departed drop column again_at;
comment on column pgqueue.jobs.claims is
    'How many times it was claimed, returned claims included: with the worker, who may speak for it.';
