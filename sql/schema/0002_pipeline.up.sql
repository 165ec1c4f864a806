-- What the data pipeline reads by: in which transaction a job ended, who worked, when the code changed, which days are
-- safely out.

comment on column pgqueue.job_history.ended_in is 'The number of the transaction in which it ended.';
comment on column pgqueue.dead_jobs.ended_in is 'The number of the transaction in which it died.';

create table pgqueue.former_workers (
    id          uuid        primary key,
    started_at  timestamptz not null,
    ended_at    timestamptz not null,
    concurrency integer     not null,
    host        text        not null,
    version     text        not null,
    queues      text[]
);
comment on table pgqueue.former_workers is
    'Workers that went off the list: how much could have been run, and when. Kept as long as the history.';
comment on column pgqueue.former_workers.ended_at is 'When it left, or its lease ran out: it may be swept away long after.';

create or replace function pgqueue.note_departure() returns trigger language plpgsql as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.departed (worker_id) select id from pgqueue.workers on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        select id, started_at, greatest(started_at, least(now(), lease_until)), concurrency, host, version, queues
        from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.departed (worker_id) values (old.id) on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version, queues)
        values (old.id, old.started_at, greatest(old.started_at, least(now(), old.lease_until)), old.concurrency, old.host,
                old.version, old.queues) on conflict do nothing;
    end if;
    return null;
end $$;

create table pgqueue.deploys (
    deployed_at timestamptz primary key default now(),
    version     text        not null
);
comment on table pgqueue.deploys is 'When which version of your code went live, as `pgqueue pipeline deployed` was told.';

create table pgqueue.lake_days (
    day          date        primary key,
    history_rows bigint      not null,
    dead_rows    bigint      not null,
    checksum     numeric     not null,
    below        bigint      not null,
    pruned_below bigint      not null default 0,
    verified_at  timestamptz not null default now(),
    lake         text        not null
);
comment on table pgqueue.lake_days is
    'Days of the history that are verified in a lake. While there are any, only such days are dropped.';
comment on column pgqueue.lake_days.checksum is 'Of the rows in the history; dead jobs may be retried or purged later.';
comment on column pgqueue.lake_days.below is 'The rows of transactions below this number are in the lake.';
comment on column pgqueue.lake_days.pruned_below is
    'The rows of transactions below this number have been dropped from the history; 0: none have.';

-- The partition of a day of the history.
create function pgqueue.history_partition(day date) returns regclass language sql stable as $$
    select to_regclass('pgqueue.job_history_' || to_char(day, 'YYYYMMDD'))
$$;

-- Gives a day's rows a partition of their own, where they lie in the default one; false: the tables were in use.
create function pgqueue.gather_history_day(day date) returns boolean language plpgsql as $$
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

-- Keeps all others from writing to a day of the history until the transaction ends; false: another transaction writes to
-- it; null: it is gone. A job that ends now is written to another day.
create function pgqueue.hold_history_day(day date) returns boolean language plpgsql as $$
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

-- Drops a day of the history, and notes that what the lake has of it is gone from here; false: the tables were in use.
-- Dropping locks the parent, and every completion waits behind a transaction that waits for that lock: this one gives up
-- after 200 ms, and its caller tries again.
create function pgqueue.drop_history_day(day date) returns boolean language plpgsql as $$
begin
    perform set_config('lock_timeout', '200ms', true);
    execute format('drop table %s', pgqueue.history_partition(day));
    update pgqueue.lake_days as known set pruned_below = known.below where known.day = drop_history_day.day;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- Whether a day of the history may go: where there is a lake, every row of it has to be verified in that. The day is held
-- from then on.
create function pgqueue.is_history_day_out(day date) returns boolean language plpgsql as $$
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

-- Drops the history partitions of the days before the given one; returns how many went. Where there is a lake, a day that
-- is not wholly in it is kept.
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
