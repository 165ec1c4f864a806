-- Lanes, in which limited jobs wait, and the limits themselves.

alter table pgqueue.dead_jobs add column lane text, add column cost integer;
comment on column pgqueue.jobs.lane is
    'The keys of the limits under which it runs, and of its share; null: it has none, and stands in its queue.';
comment on column pgqueue.jobs.in_lane is
    'True: it is blocked, and waits for nothing but the limits of its lane: workers claim it from there.';
comment on column pgqueue.jobs.cost is 'How much of each rate its start takes; null: 1.';
comment on column pgqueue.dead_jobs.lane is 'As in jobs.';
comment on column pgqueue.dead_jobs.cost is 'As in jobs.';

-- A job with a lane is never ready. Many statements make jobs ready, also those of former releases and of users; this is the
-- one place that keeps the promise. Inserts do not come by here: COPY would become slower for all jobs.
create function pgqueue.keep_in_lane() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.status = 'ready' then
        new.status := 'blocked';
        new.in_lane := true;
    elsif new.status <> 'blocked' then
        new.in_lane := null;
    end if;
    return new;
end $$;
create trigger jobs_keep_in_lane before update of status, lane on pgqueue.jobs
    for each row when (new.lane is not null) execute function pgqueue.keep_in_lane();

create table pgqueue.limits (
    name     text        primary key,
    most     integer     check (most >= 0),
    every    bigint      check (every > 0),
    burst    bigint      check (burst > 0),
    declared text        not null,
    set_at   timestamptz,
    set_by   text,
    check ((most is null) <> (every is null) and (every is null) = (burst is null))
) with (fillfactor = 50);
comment on table pgqueue.limits is
    'Limits by name. A worker that claims under limits locks their rows, so that no other worker counts at the same time.';
comment on column pgqueue.limits.most is 'How many jobs of a key run at most at once; null: this is a rate.';
comment on column pgqueue.limits.every is 'Of a rate: the microseconds between two starts of a key that cost 1 each.';
comment on column pgqueue.limits.burst is 'Of a rate: how much may start at once after a pause.';
comment on column pgqueue.limits.declared is 'What the code says of it, as text; an operator may have set other numbers.';
comment on column pgqueue.limits.set_at is 'When an operator set its numbers; null: they are as declared.';
comment on column pgqueue.limits.set_by is 'Who set them, for people to read.';

create table pgqueue.rates (
    key text   primary key,
    tat bigint not null
) with (fillfactor = 50);
comment on table pgqueue.rates is 'The state of each key of a rate. A row whose time has passed means nothing, and is removed.';
comment on column pgqueue.rates.tat is
    'The theoretical arrival time: microseconds since 1970, from which on a start is not early, by the generic cell rate algorithm.';

create table pgqueue.limited_tasks (
    task text  primary key,
    keys jsonb not null,
    cost jsonb
);
comment on table pgqueue.limited_tasks is 'Which limits and which share a task has, as the code says: for jobs that SQL enqueues.';
comment on column pgqueue.limited_tasks.keys is
    'Its keys, in order: the name of each limit ("" for a share), and the arguments that it is by.';
comment on column pgqueue.limited_tasks.cost is 'What a start takes of each rate: a number, or the name of an argument; null: 1.';

-- pgqueue/values/limiting.py makes the same, and a test compares.
create function pgqueue.lane_of(keys jsonb, args jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select string_agg(
        case when jsonb_array_length(key -> 'by') = 0 then key ->> 'limit'
             else pgqueue.unique_key((key ->> 'limit') || ' ', args, array(select jsonb_array_elements_text(key -> 'by'))) end,
        E'\n' order by place)
    from jsonb_array_elements(keys) with ordinality as one (key, place)
$$;
comment on function pgqueue.lane_of(jsonb, jsonb) is 'The lane of a job with these arguments.';

create function pgqueue.put_in_lanes(ids bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from pgqueue.limited_tasks) then
        return;
    end if;
    update pgqueue.jobs as job
    set lane = pgqueue.lane_of(limited.keys, pgqueue.as_jsonb(job.args)),
        cost = case jsonb_typeof(limited.cost)
                   when 'number' then limited.cost::text::integer
                   when 'string' then substring(job.args ->> (limited.cost #>> '{}') from '^[1-9][0-9]{0,6}$')::integer end
    from pgqueue.limited_tasks as limited
    where job.id = any(ids) and limited.task = job.task and job.lane is null and job.status <> 'running';
end $$;
comment on function pgqueue.put_in_lanes(bigint[]) is
    'Gives jobs that the same transaction has added the lanes of their tasks. Else a worker may have claimed them.';

-- For the roles that have rights to the jobs: what they do to those, they may do to these.
do $$
declare
    right_to record;
begin
    for right_to in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name, privilege_type
        from pg_class, aclexplode(relacl)
        where pg_class.oid = 'pgqueue.jobs'::regclass and grantee <> relowner
          and privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    loop
        execute format('grant %s on pgqueue.limits, pgqueue.rates, pgqueue.limited_tasks to %s', right_to.privilege_type, right_to.name);
    end loop;
end $$;

-- A role that may add jobs may read the settings of queues, see how full a queue is, and give its jobs their lanes.
do $$
declare
    one record;
begin
    for one in
        select distinct case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
        from (select grantee, privilege_type
              from pg_class, aclexplode(relacl) where oid = 'pgqueue.jobs'::regclass
              union all
              select grantee, privilege_type
              from pg_attribute, aclexplode(attacl) where attrelid = 'pgqueue.jobs'::regclass) as granted
        where privilege_type = 'INSERT'
    loop
        execute format('grant select on pgqueue.queues to %s', one.name);
        execute format('grant select (id, priority, max_attempts, queue, status, lane, in_lane), update (lane, cost) on pgqueue.jobs to %s',
                       one.name);
    end loop;
end $$;

-- As in revision 0006, and the lane goes with it.
create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors, meta, at_end, lane, cost)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time), meta, at_end, lane, cost
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor moved to the dead jobs (%): tried again in an hour',
        job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;
