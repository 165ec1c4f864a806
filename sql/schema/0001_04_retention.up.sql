-- For how long ended and dead jobs are kept; the days of the history, and what drops them.

-- A worker need not own the tables. So what it calls here to make and drop days runs with the owner's rights.

create table pgqueue.retention (
    only_row     boolean     primary key default true check (only_row),
    history      interval    not null default '7 days' check (history >= '0'),
    dead         interval    check (dead >= '0'),
    history_args integer     not null default 8000,
    history_cut  date,
    set_at       timestamptz,
    set_by       text
);
comment on table pgqueue.retention is 'One row: for how long ended and dead jobs are kept. Workers that are told a value store it.';
comment on column pgqueue.retention.only_row is 'True: there is no other row.';
comment on column pgqueue.retention.history is 'Of queues that have no length of their own; 0: succeeded jobs are dropped with their day.';
comment on column pgqueue.retention.dead is 'Of queues that have no length of their own; null: for ever.';
comment on column pgqueue.retention.history_args is
    'Bytes, as stored: longer arguments of a succeeded job are not copied to the history.';
comment on column pgqueue.retention.history_cut is
    'Days before this one have been cleared of jobs of queues without a length of their own; null: no day has. Days that no queue keeps are dropped whole.';
comment on column pgqueue.retention.set_at is 'When a value was changed last; null: the values are pgqueue''s own.';
comment on column pgqueue.retention.set_by is 'Who changed a value last: an operator, or the host and process of a worker whose program gives a value.';
insert into pgqueue.retention default values;

-- Stores the values that are given, notes a change in the audit, and returns what holds now and whether it is new. Dead jobs
-- that are kept for 100,000 days or longer are kept for ever.
-- callers: worker, operator
create function pgqueue.keep_for(
    history interval, dead interval, history_args integer, said_by text, why text default null,
    out history_now interval, out dead_now interval, out history_args_now integer, out changed boolean
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    held pgqueue.retention;
begin
    insert into pgqueue.retention default values on conflict do nothing;
    select * into held from pgqueue.retention for update;
    history_now := coalesce(keep_for.history, held.history);
    dead_now := nullif(least(coalesce(keep_for.dead, held.dead, '100000 days'), '100000 days'), '100000 days');
    history_args_now := coalesce(keep_for.history_args, held.history_args);
    changed := (history_now, dead_now, history_args_now) is distinct from (held.history, held.dead, held.history_args);
    if changed then
        update pgqueue.retention as kept
        set history = history_now, dead = dead_now, history_args = history_args_now, set_at = now(), set_by = said_by;
        insert into pgqueue.audit (said_by, action, target, details)
        values (keep_for.said_by, 'keep', '*', jsonb_strip_nulls(jsonb_build_object(
            'history', history_now, 'dead', coalesce(dead_now::text, 'for ever'), 'history_args', history_args_now, 'why', keep_for.why,
            'before', jsonb_build_object(
                'history', held.history, 'dead', coalesce(held.dead::text, 'for ever'), 'history_args', held.history_args))));
    end if;
end $$;

-- The longest arguments, in bytes as stored, that the history keeps of a succeeded job. With the owner's rights: a take may
-- run for a role that cannot read the table.
-- callers: worker, operator
create function pgqueue.history_args() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select history_args from pgqueue.retention
$$;

-- The first day of the history that any queue keeps; null: all of it. A timestamp cannot be 300 years before now for every
-- "now" and every interval that Python has, so what is longer counts as for ever.
-- callers: owner
create function pgqueue.first_day_kept(at timestamptz) returns date
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    longest constant interval := greatest((select history from pgqueue.retention), (select max(keep_history) from pgqueue.queues));
begin
    return case when longest < interval '100000 days' then ((at - longest) at time zone 'UTC')::date end;
end $$;

-- The partition of a day of the history.
-- callers: worker, pipeline
create function pgqueue.history_partition(day date) returns regclass language sql stable
set search_path = pg_catalog, pg_temp as $$
    select to_regclass('pgqueue.job_history_' || to_char(day, 'YYYYMMDD'))
$$;

-- Gives a day of the history its partition. Returns 'made'; 'there': it has one; 'in use': a transaction has the tables open,
-- try again later; or 'default': the day has begun, and its rows lie in the default partition and stay there. Moving them
-- would hold up every job that ends meanwhile. Rows of past days are moved: nothing is added to them.
-- callers: worker, pipeline
create function pgqueue.make_history_day(day date) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
    child  constant text        := 'job_history_' || to_char(day::timestamp, 'YYYYMMDD');
    starts constant timestamptz := day::timestamp at time zone 'UTC';
    ends   constant timestamptz := (day + 1)::timestamp at time zone 'UTC';
    bounds constant text        := format('from (%L) to (%L)', to_char(day::timestamp, 'YYYY-MM-DD') || ' 00:00+00',
                                          to_char((day + 1)::timestamp, 'YYYY-MM-DD') || ' 00:00+00');
begin
    if to_regclass('pgqueue.' || child) is not null then
        return 'there';
    end if;
    if day >= (now() at time zone 'UTC')::date and exists (
        select from pgqueue.job_history_default where finished_at >= starts and finished_at < ends) then
        return 'default';
    end if;
    execute format('create table pgqueue.%I (like pgqueue.job_history including all)', child);
    execute format(
        'with stray as (delete from pgqueue.job_history_default
                        where finished_at >= $1 and finished_at < $2 returning *)
         insert into pgqueue.%I select * from stray', child) using starts, ends;
    execute format('alter table pgqueue.job_history attach partition pgqueue.%I for values %s', child, bounds);
    return 'made';
exception
    when lock_not_available or duplicate_table or unique_violation then
        return 'in use';
    when check_violation then  -- a job has ended meanwhile, and its row is in the default partition
        return 'in use';
end $$;

-- Makes the history partitions of the given days; returns how many it made.
-- callers: worker
create function pgqueue.ensure_history_days(first_day date, last_day date) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made integer := 0;
    said text;
begin
    for number in 0 .. last_day - first_day loop
        said := pgqueue.make_history_day(first_day + number);
        exit when said = 'in use';
        made := made + (said = 'made')::integer;
    end loop;
    return made;
end $$;
select pgqueue.ensure_history_days((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + 7);

-- Gives a day's rows a partition of their own, where they lie in the default one; false: the tables were in use.
-- callers: pipeline
create function pgqueue.gather_history_day(day date) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    return pgqueue.history_partition(day) is not null
        or not exists (select from pgqueue.job_history_default
                       where finished_at >= day::timestamp at time zone 'UTC'
                         and finished_at < (day + 1)::timestamp at time zone 'UTC')
        or pgqueue.make_history_day(day) <> 'in use';
end $$;

-- Keeps all others from writing to a day of the history until the transaction ends; false: another transaction writes to
-- it; null: it is gone. A job that ends now is written to another day.
-- callers: pipeline
create function pgqueue.hold_history_day(day date) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if pgqueue.history_partition(day) is null then
        return null;
    end if;
    perform set_config('lock_timeout', '5s', true);
    execute format('lock table %s in share mode', pgqueue.history_partition(day));
    return true;
exception
    when lock_not_available then
        return false;
    when undefined_table then  -- another has just dropped it
        return null;
end $$;

-- Drops a day of the history, and notes that what the lake has of it is gone from here; false: the tables were in use.
-- Dropping locks the parent, and every completion waits behind a transaction that waits for that lock: this one gives up
-- after 200 ms, and its caller tries again.
-- callers: owner
create function pgqueue.drop_history_day(day date) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('lock_timeout', '200ms', true);
    execute format('drop table if exists pgqueue.%I', 'job_history_' || to_char(day::timestamp, 'YYYYMMDD'));
    update pgqueue.lake_days as known set pruned_below = known.below where known.day = drop_history_day.day;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- Whether a day of the history may go: where there is a lake, every row of it has to be verified in that. The day is held
-- from then on.
-- callers: owner
create function pgqueue.is_history_day_out(day date) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    verified_below bigint;
    late           boolean;
begin
    if not exists (select from pgqueue.lake_days) then
        return true;
    end if;
    if pgqueue.hold_history_day(day) is not true then
        return false;
    end if;
    select known.below into verified_below from pgqueue.lake_days as known where known.day = is_history_day_out.day;
    execute format('select exists (select from %s where ended_in >= $1)', pgqueue.history_partition(day))
        into late using coalesce(verified_below, 0);
    return not late;
end $$;

-- Drops the history partitions of the days before the given one; returns how many went. Where there is a lake, a day that
-- is not wholly in it is kept.
-- callers: owner
create function pgqueue.drop_history_days(first_kept date) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- Drops what is older than the stored retention; returns how many days went.
-- callers: worker
create function pgqueue.drop_old_history(at timestamptz) returns integer
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(pgqueue.drop_history_days(pgqueue.first_day_kept(at)), 0)
$$;

-- Deletes rows of the default partition that are older than the retention, at most ``at_most``; returns how many. Where there
-- is a lake, its export first gives their days a partition.
-- callers: worker
create function pgqueue.drop_old_strays(at timestamptz, at_most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    deleted integer;
begin
    if exists (select from pgqueue.lake_days) then
        return 0;
    end if;
    delete from pgqueue.job_history_default
    where ctid = any(array(select ctid from pgqueue.job_history_default
                           where finished_at < pgqueue.first_day_kept(at)::timestamp at time zone 'UTC'
                           limit at_most for update skip locked));
    get diagnostics deleted = row_count;
    return deleted;
end $$;

-- Deletes dead jobs that are older than their queue, or the stored retention, says, at most ``at_most``; returns how many.
-- callers: worker
create function pgqueue.drop_old_dead(at timestamptz, at_most integer) returns integer
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
