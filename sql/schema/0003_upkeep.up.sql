-- What keeps the queue in order, so that no row, reader or role holds it up; how long things are kept; who may do what.

comment on column pgqueue.jobs.claims is
    'The number of the claim that took it. No worker uses a number twice: with the worker, it says which attempt holds the job.';

-- ## Errors that are kept with a job

-- The errors of a job with one more, which was recorded at the given instant. At most 10 are kept, the first and the last
-- 9, and fewer where they would take more than 64 kB; "left_out" of the first one counts the others. From the second
-- failure on, "since" is the instant of the first failure since the job was enqueued or revived: claim reads it.
create function pgqueue.with_error(kept jsonb, error jsonb, at timestamptz) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    all_of   jsonb   := case when jsonb_typeof(kept) = 'array' then kept else '[]' end;
    attempt  integer := (error->>'attempt')::integer;
    since    jsonb   := case when attempt > 1 then coalesce(all_of->-1->'since', all_of->(1 - attempt)->'at') end;
    left_out integer := coalesce(substring(all_of->0->>'left_out' from '^[0-9]{1,8}$')::integer, 0);
    surplus  integer;
begin
    all_of := all_of || (error || jsonb_build_object('at', at)
                         || case when since is null then '{}' else jsonb_build_object('since', since) end);
    surplus := greatest(0, jsonb_array_length(all_of) - 10);
    if surplus > 0 then
        select jsonb_agg(value order by place) into all_of
        from jsonb_array_elements(all_of) with ordinality as one (value, place)
        where place = 1 or place > surplus + 1;
    end if;
    while jsonb_array_length(all_of) > 2 and octet_length(all_of::text) > 65536 loop
        all_of := all_of - 1;
        surplus := surplus + 1;
    end loop;
    if surplus > 0 then
        all_of := jsonb_set(all_of, '{0,left_out}', to_jsonb(left_out + surplus));
    end if;
    return all_of;
end $$;

-- ## Jobs whose id a dead job has

-- An id that no job has. The sequence of ids may be behind the data, after a partial restore or an upgrade by logical
-- replication; it is moved on, so that this does not happen again.
create function pgqueue.free_id() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ids     constant regclass := pg_get_serial_sequence('pgqueue.jobs', 'id');
    highest bigint := greatest((select max(id) from pgqueue.jobs), (select max(id) from pgqueue.dead_jobs),
                               (select max(id) from pgqueue.job_history));
begin
    if highest > coalesce(pg_sequence_last_value(ids), 0) then
        perform setval(ids, highest);
    end if;
    return nextval(ids);
end $$;

-- ## Workers that have departed

-- (The part before this one has locked the table.)
alter table pgqueue.departed add column again_at timestamptz;
comment on column pgqueue.departed.again_at is
    'Not to be looked for before then: one of its jobs could not be ended, and looking means reading all jobs.';

-- ## How long things are kept

create table pgqueue.retention (
    only_row boolean     primary key default true check (only_row),
    history  interval,
    dead     interval,
    set_at   timestamptz,
    set_by   text
);
comment on table pgqueue.retention is 'One row: for how long ended and dead jobs are kept. Workers that are told a value store it.';
comment on column pgqueue.retention.history is 'Null: nobody has said; 7 days.';
comment on column pgqueue.retention.dead is 'Null: nobody has said; for ever.';
comment on column pgqueue.retention.set_by is 'The worker that stored a new value last: its host and process.';
insert into pgqueue.retention default values;

-- Stores the values that are given, and returns what holds now and what held before.
create function pgqueue.keep_for(
    history interval, dead interval, said_by text,
    out history_now interval, out dead_now interval, out history_before interval, out dead_before interval
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select kept.history, kept.dead into history_before, dead_before from pgqueue.retention as kept;
    history_now := coalesce(keep_for.history, history_before);
    dead_now := coalesce(keep_for.dead, dead_before);
    if (history_now, dead_now) is distinct from (history_before, dead_before) then
        insert into pgqueue.retention as kept (history, dead, set_at, set_by)
        values (history_now, dead_now, now(), said_by)
        on conflict (only_row) do update
        set history = excluded.history, dead = excluded.dead, set_at = excluded.set_at, set_by = excluded.set_by;
    end if;
end $$;

-- The first day of the history to keep; null: all of it. A timestamp cannot be 300 years before now for every "now" and
-- every interval that Python has, so what is longer counts as for ever.
create function pgqueue.first_day_kept(at timestamptz) returns date
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select case when span < interval '100000 days' then ((at - span) at time zone 'UTC')::date end
    from (select coalesce((select history from pgqueue.retention), interval '7 days') as span) as kept
$$;

-- ## The history's days

-- Gives a day of the history its partition. Returns 'made'; 'there': it has one; 'in use': a transaction has the tables open, try again
-- later; or 'default': the day has begun, and its rows lie in the default partition and stay there. Moving them would hold
-- up every job that ends meanwhile. Rows of past days are moved: nothing is added to them.
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

-- Makes the history partitions of the given days; returns how many it made. (Workers of revision 0002 call it.)
create or replace function pgqueue.ensure_history_days(first_day date, last_day date) returns integer
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

create or replace function pgqueue.gather_history_day(day date) returns boolean language plpgsql as $$
begin
    return pgqueue.history_partition(day) is not null
        or not exists (select from pgqueue.job_history_default
                       where finished_at >= day::timestamp at time zone 'UTC'
                         and finished_at < (day + 1)::timestamp at time zone 'UTC')
        or pgqueue.make_history_day(day) <> 'in use';
end $$;

create or replace function pgqueue.hold_history_day(day date) returns boolean language plpgsql as $$
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

create or replace function pgqueue.drop_history_day(day date) returns boolean language plpgsql as $$
begin
    perform set_config('lock_timeout', '200ms', true);
    execute format('drop table if exists pgqueue.%I', 'job_history_' || to_char(day::timestamp, 'YYYYMMDD'));
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
create function pgqueue.drop_old_history(at timestamptz) returns integer
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(pgqueue.drop_history_days(pgqueue.first_day_kept(at)), 0)
$$;

-- Workers of revision 0002 call it with the retention of their own program, which may be shorter than the one that is
-- stored: the longer one holds.
create or replace function pgqueue.drop_history_before(first_kept date) returns integer
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(pgqueue.drop_history_days(least(first_kept, kept)), 0)
    from (select pgqueue.first_day_kept(now()) as kept) as stored where kept is not null
$$;

-- Deletes rows of the default partition that are older than the retention, at most ``at_most``; returns how many. Where there
-- is a lake, its export first gives their days a partition.
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

-- Deletes dead jobs that are older than the stored retention, at most ``at_most``; returns how many.
create function pgqueue.drop_old_dead(at timestamptz, at_most integer) returns integer
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

-- ## Who may do what

-- Names in functions are looked up here alone: a role that may create objects in a schema of a caller's search_path must
-- not have its own code run by them.
-- And what tidies, or enqueues, runs with the rights of the tables' owner: a worker need not own the tables, an enqueuer
-- need not read them. So these functions are for the roles that may do this work themselves today, and for no others.
do $$
declare
    one     record;
    who     record;
    working constant text[] := '{free_id,keep_for,make_history_day,ensure_history_days,drop_history_days,drop_old_history,
                                 drop_history_before,drop_old_strays,drop_old_dead}';
begin
    for one in
        select oid::regprocedure as name, proname from pg_proc
        where pronamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass)
    loop
        execute format('alter function %s set search_path = pg_catalog, pg_temp', one.name);
        if one.proname = 'enqueue' then
            execute format('alter function %s security definer', one.name);
        end if;
        continue when one.proname <> 'enqueue' and one.proname <> all(working);
        execute format('revoke execute on function %s from public', one.name);
        for who in
            select distinct case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
            from pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner)))
            where pg_class.oid = 'pgqueue.jobs'::regclass
              and privilege_type = case when one.proname = 'enqueue' then 'INSERT' else 'UPDATE' end
        loop
            execute format('grant execute on function %s to %s', one.name, who.name);
        end loop;
    end loop;
end $$;
