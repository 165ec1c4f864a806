-- What the data pipeline reads by: in which transaction a job ended, who worked, when the code changed, which days are
-- safely out.

-- Rows of one moment become visible when their transactions commit, in any order. So a reader that must lose nothing does
-- not go by the clock but by the number of the transaction: all that are lower than every transaction in progress are
-- there. Rows from before this revision count as ended in its own transaction.
alter table pgqueue.job_history
    add column ended_in bigint not null default pg_current_xact_id()::text::bigint;
alter table pgqueue.dead_jobs
    add column ended_in bigint not null default pg_current_xact_id()::text::bigint;
comment on column pgqueue.job_history.ended_in is 'The number of the transaction in which it ended.';
comment on column pgqueue.dead_jobs.ended_in is 'The number of the transaction in which it died.';
-- Appended in this order, give or take: a block range index finds the newest at next to no cost for the writers.
create index job_history_ended_in on pgqueue.job_history using brin (ended_in) with (autosummarize = on);
create index dead_jobs_ended_in on pgqueue.dead_jobs (ended_in);

create table pgqueue.former_workers (
    id          uuid        primary key,
    started_at  timestamptz not null,
    ended_at    timestamptz not null default now(),
    concurrency integer     not null,
    host        text        not null,
    version     text        not null,
    queues      text[]
);
comment on table pgqueue.former_workers is
    'Workers that went off the list: how much could have been run, and when. Kept as long as the history.';

create or replace function pgqueue.note_departure() returns trigger language plpgsql as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.departed (worker_id) select id from pgqueue.workers on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, concurrency, host, version, queues)
        select id, started_at, concurrency, host, version, queues from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.departed (worker_id) values (old.id) on conflict do nothing;
        insert into pgqueue.former_workers (id, started_at, concurrency, host, version, queues)
        values (old.id, old.started_at, old.concurrency, old.host, old.version, old.queues) on conflict do nothing;
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
    verified_at  timestamptz not null default now(),
    lake         text        not null
);
comment on table pgqueue.lake_days is
    'Days of the history that are verified in a lake. While there are any, only such days are dropped.';
comment on column pgqueue.lake_days.checksum is 'Of the rows in the history; dead jobs may be retried or purged later.';

-- Drops the history partitions of the days before the given one; returns how many went. Where there is a lake, a day that
-- is not in it is kept. Dropping locks the parent, and whoever waits for that lock holds up every completion behind it:
-- give up after a moment instead, and let the next sweep try again.
create or replace function pgqueue.drop_history_before(first_kept date) returns integer language plpgsql as $$
declare
    child_name text;
    dropped   integer := 0;
begin
    perform set_config('lock_timeout', '200ms', true);
    for child_name in
        select child.relname from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'pgqueue.job_history'::regclass
          and child.relname ~ '^job_history_\d{8}$'
          and to_date(right(child.relname, 8), 'YYYYMMDD') < first_kept
          and (not exists (select from pgqueue.lake_days)
               or to_date(right(child.relname, 8), 'YYYYMMDD') in (select day from pgqueue.lake_days))
        order by child.relname
    loop
        begin
            execute format('drop table pgqueue.%I', child_name);
            dropped := dropped + 1;
        exception when lock_not_available then
            exit;
        end;
    end loop;
    delete from pgqueue.former_workers
    where ended_at < first_kept
      and not exists (select from pg_inherits join pg_class child on child.oid = inhrelid
                      where inhparent = 'pgqueue.job_history'::regclass
                        and child.relname ~ '^job_history_\d{8}$'
                        and to_date(right(child.relname, 8), 'YYYYMMDD') < first_kept);
    return dropped;
end $$;
