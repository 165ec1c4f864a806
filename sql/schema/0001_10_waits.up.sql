-- What blocked jobs wait for, and until when.

-- A table of its own, not a column of jobs: a job can wait for several things at once, and most jobs wait for nothing.
create table pgqueue.waits (
    waits_for text   not null,
    job_id    bigint not null,
    until     timestamptz,
    primary key (waits_for, job_id)
);
comment on table pgqueue.waits is 'What each blocked job waits for; a job is ready, or scheduled, when the last of its rows is removed.';
comment on column pgqueue.waits.job_id is 'A blocked job. It is ready, or scheduled, when the last of its rows is removed.';
comment on column pgqueue.waits.waits_for is 'The name of what has to happen first. The feature that blocks the job gives it and knows it.';
comment on column pgqueue.waits.until is 'When the job is admitted though this has not happened; null: it waits as long as it takes.';
create index waits_job_id on pgqueue.waits (job_id);
create index waits_until on pgqueue.waits (until) where until is not null;

create table pgqueue.deadlines (
    job_id    bigint      not null,
    waits_for text        not null check (length(waits_for) between 1 and 520),
    until     timestamptz not null,
    passed    boolean     not null default false,
    primary key (job_id, waits_for)
);
comment on table pgqueue.deadlines is
    'Until when a job waits, for a signal or for a time: the deadline of its first attempt that waited holds for all later ones.';
comment on column pgqueue.deadlines.job_id is 'A job that waits for a signal or for a time.';
comment on column pgqueue.deadlines.waits_for is 'What it waits for, as in waits.';
comment on column pgqueue.deadlines.until is 'Until when. The first wait for this sets it.';
comment on column pgqueue.deadlines.passed is 'It was decided that the wait is over: a signal that arrives later does not change this.';

-- Makes blocked jobs ready, or scheduled, that wait for nothing any more. The caller has locked their rows in a statement
-- before. A job that the database refuses is set aside, and the others are admitted.
-- callers: worker, operator
create function pgqueue.admit_free(job_ids bigint[], at_time timestamptz, out admitted integer, out refused bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    one    bigint;
    reason text;
begin
    refused := '{}';
    begin
        update pgqueue.jobs set status = case when run_at > at_time then 'scheduled' else 'ready' end
        where id = any(job_ids) and status = 'blocked' and not exists (select from pgqueue.waits where waits.job_id = jobs.id);
        get diagnostics admitted = row_count;
    exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
        admitted := 0;
        foreach one in array job_ids loop
            begin
                update pgqueue.jobs set status = case when run_at > at_time then 'scheduled' else 'ready' end
                where id = one and status = 'blocked' and not exists (select from pgqueue.waits where waits.job_id = one);
                admitted := admitted + found::integer;
            exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
                get stacked diagnostics reason = message_text;
                perform pgqueue.set_aside(one, reason, at_time);
                -- what could not be set aside either is looked at again in an hour
                insert into pgqueue.waits (waits_for, job_id, until)
                select 'refused', id, at_time + interval '1 hour' from pgqueue.jobs where id = one
                on conflict (waits_for, job_id) do update set until = excluded.until;
                refused := refused || one;
            end;
        end loop;
    end;
    if admitted > 0 and exists (select from pgqueue.workers where idle) then
        perform pg_notify('pgqueue.wake', '');
    end if;
end $$;

-- Admits the jobs whose deadline has passed, some at a time; jobs that another transaction has locked are left for later.
-- callers: worker
create function pgqueue.admit_lapsed(at_time timestamptz, most integer, out lapsed integer, out refused bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    waiting bigint[];
begin
    waiting := array(select job.id
                     from pgqueue.waits join pgqueue.jobs as job on job.id = waits.job_id
                     where waits.until <= at_time and job.status = 'blocked'
                     order by waits.until limit most for update of job skip locked);
    with over as (
        delete from pgqueue.waits where job_id = any(waiting) and until <= at_time returning job_id, waits_for
    )
    update pgqueue.deadlines as deadline set passed = true
    from over where deadline.job_id = over.job_id and deadline.waits_for = over.waits_for;
    delete from pgqueue.waits
    where ctid = any(array(select ctid from pgqueue.waits where until <= at_time
                           and not exists (select from pgqueue.jobs where id = job_id and status = 'blocked') limit most));
    lapsed := cardinality(waiting);
    select free.refused into admit_lapsed.refused from pgqueue.admit_free(waiting, at_time) as free;
end $$;
