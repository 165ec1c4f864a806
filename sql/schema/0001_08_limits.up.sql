-- Limits, and the lanes in which limited jobs wait.

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
comment on column pgqueue.limits.name is 'Its name; queue:mail limits the queue mail as a whole.';
comment on column pgqueue.limits.most is 'How many jobs of a key run at most at once; null: this is a rate.';
comment on column pgqueue.limits.every is 'Of a rate: the microseconds between two starts of a key that cost 1 each.';
comment on column pgqueue.limits.burst is 'Of a rate: how much may start at once after a pause.';
comment on column pgqueue.limits.declared is 'What the code says of it, as text; an operator may have set other numbers.';
comment on column pgqueue.limits.set_at is 'When an operator set its numbers; null: they are as declared.';
comment on column pgqueue.limits.set_by is 'Who set them, for people to read.';

create sequence pgqueue.limited_claims;
comment on sequence pgqueue.limited_claims is 'Numbers claims of limited jobs, in the order in which the rows of their limits were locked.';

create table pgqueue.rates (
    key text   primary key,
    tat bigint not null
) with (fillfactor = 50);
comment on table pgqueue.rates is 'The state of each key of a rate. A row whose time has passed means nothing, and is removed.';
comment on column pgqueue.rates.key is 'A key of a rate.';
comment on column pgqueue.rates.tat is
    'The theoretical arrival time: microseconds since 1970, from which on a start is not early, by the generic cell rate algorithm.';

create table pgqueue.limited_tasks (
    task     text    primary key,
    keys     jsonb   not null,
    cost     jsonb,
    ordered  boolean,
    defaults jsonb
);
comment on table pgqueue.limited_tasks is 'Which limits and which share a task declares: for jobs that SQL enqueues.';
comment on column pgqueue.limited_tasks.task is 'The name of the task.';
comment on column pgqueue.limited_tasks.keys is
    'Its keys, in order: the name of each limit ("" for a share), the arguments that it is by, and how many places a job takes, if not one.';
comment on column pgqueue.limited_tasks.cost is 'What a start takes of each rate: a number, or the name of an argument; null: 1.';
comment on column pgqueue.limited_tasks.ordered is 'A job of it that waits for its retry keeps its place in its lane; null: it does not.';
comment on column pgqueue.limited_tasks.defaults is
    'The defaults of the arguments that keys and cost are made of: an argument with this value is left out. Null: there are none.';

-- A job with a lane is never ready. Many statements make jobs ready, also those of users; this is the one place that keeps
-- the promise. And a job of an ordered limit keeps its place while it waits for a retry. Inserts do not come by here: COPY
-- would become slower for all jobs.
-- callers: trigger
create function pgqueue.keep_in_lane() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.status in ('ready', 'scheduled') and old.status = 'running' then
        if exists (select from pgqueue.limited_tasks where task = new.task and ordered) then  -- enqueuers may not read it
            if new.status = 'ready' then
                new.run_at := old.run_at;
            else
                new.place_at := old.run_at;
            end if;
        end if;
    elsif new.status = 'ready' and new.place_at is not null then
        new.run_at := new.place_at;
    end if;
    if new.status <> 'scheduled' then
        new.place_at := null;
    end if;
    if new.status = 'ready' then
        new.status := 'blocked';
        new.in_lane := true;
    elsif new.status <> 'blocked' then
        new.in_lane := null;
    end if;
    return new;
end $$;
-- For a job that is claimed out of its lane, and keeps no place, the function would change nothing; to call it takes 1.4 µs.
create trigger jobs_keep_in_lane before update of status, lane on pgqueue.jobs
    for each row when (new.lane is not null and (new.status <> 'running' or new.in_lane or new.place_at is not null))
    execute function pgqueue.keep_in_lane();

-- pgqueue/values/limits/task_limits.py makes the same, and a test compares.
-- callers: owner
create function pgqueue.lane_of(keys jsonb, args jsonb, costs jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select string_agg(
        case when jsonb_array_length(key -> 'by') = 0 then key ->> 'limit'
             else pgqueue.unique_key((key ->> 'limit') || ' ', args, array(select jsonb_array_elements_text(key -> 'by'))) end
        || coalesce(' *' || nullif(substring(case jsonb_typeof(key -> 'places') when 'string' then costs ->> (key ->> 'places')
                                                  else key ->> 'places' end from '^[1-9][0-9]{0,6}$'), '1'), ''),
        E'\n' order by place)
    from jsonb_array_elements(keys) with ordinality as one (key, place)
$$;
comment on function pgqueue.lane_of(jsonb, jsonb, jsonb) is
    'The lane of a job with these arguments; costs: the arguments with their defaults, for the numbers of places that a job takes.';

-- An argument which has its default is left out, as Python leaves it out.
-- callers: owner
create function pgqueue.place_of(limited pgqueue.limited_tasks, args jsonb, out lane text, out cost integer)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select pgqueue.lane_of(limited.keys, case when jsonb_typeof(args) = 'object' then args - array(
               select key from jsonb_each(limited.defaults) where (args -> key)::text = value::text) else '{}' end,
               coalesce(limited.defaults, '{}') || case when jsonb_typeof(args) = 'object' then args else '{}' end),
           case jsonb_typeof(limited.cost)
               when 'number' then limited.cost::text::integer
               when 'string' then substring(coalesce(args ->> (limited.cost #>> '{}'),
                   limited.defaults ->> (limited.cost #>> '{}')) from '^[1-9][0-9]{0,6}$')::integer end
$$;
comment on function pgqueue.place_of(pgqueue.limited_tasks, jsonb) is 'The lane of a job of this task with these arguments, and what its start costs.';

-- With the owner's rights: it reads limited_tasks, and writes to jobs of every queue.
-- callers: worker, operator, producer:spark
create function pgqueue.put_in_lanes(ids bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from pgqueue.limited_tasks) then
        return;
    end if;
    update pgqueue.jobs as job
    set (lane, cost) = (select place.lane, place.cost from pgqueue.place_of(limited, pgqueue.as_jsonb(job.args)) as place)
    from pgqueue.limited_tasks as limited
    where job.id = any(ids) and limited.task = job.task and job.lane is null and job.status <> 'running';
end $$;
comment on function pgqueue.put_in_lanes(bigint[]) is
    'Gives jobs that the same transaction has added the lanes of their tasks. Else a worker may have claimed them.';

-- For autoscalers: how far workers are behind with what one more worker could start now. Jobs of paused queues, and those
-- that a full limit or a rate holds up, do not count: more workers would not start them. The first job of each queue and
-- priority, and of each lane and priority, is found by leaps from one to the next, 4 to 10 µs each, and 2,000 leaps at most of
-- each kind; places are counted as claims count them. With 1,000,000 ready jobs in 20 queues it takes 0.2 to 2.3 ms.
-- callers: worker, operator, monitor, reader
create function pgqueue.backlog_seconds(queue text default null, at timestamptz default null) returns float8
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive clock as (
        select coalesce(backlog_seconds.at, clock_timestamp()) as now
    ),
    ready as (
        (select job.queue, -job.priority as turn, job.run_at, 1 as place from pgqueue.jobs as job
         where job.status = 'ready' and job.queue >= coalesce(backlog_seconds.queue, '')
         order by job.queue, -job.priority, job.run_at limit 1)
        union all
        select next.*, ready.place + 1 from ready cross join lateral (
            select job.queue, -job.priority as turn, job.run_at from pgqueue.jobs as job
            where job.status = 'ready' and (job.queue, -job.priority) > (ready.queue, ready.turn)
            order by job.queue, -job.priority, job.run_at limit 1) as next
        where ready.place < 2000 and (backlog_seconds.queue is null or ready.queue = backlog_seconds.queue)
    ),
    in_lane as (
        (select job.queue, job.lane, -job.priority as turn, job.run_at, job.cost, 1 as place from pgqueue.jobs as job
         where job.in_lane and job.queue >= coalesce(backlog_seconds.queue, '')
         order by job.queue, job.lane, -job.priority, job.run_at limit 1)
        union all
        select next.*, in_lane.place + 1 from in_lane cross join lateral (
            select job.queue, job.lane, -job.priority as turn, job.run_at, job.cost from pgqueue.jobs as job
            where job.in_lane and (job.queue, job.lane, -job.priority) > (in_lane.queue, in_lane.lane, in_lane.turn)
            order by job.queue, job.lane, -job.priority, job.run_at limit 1) as next
        where in_lane.place < 2000 and (backlog_seconds.queue is null or in_lane.queue = backlog_seconds.queue)
    ),
    first as materialized (
        select row_number() over () as number, queue, lane, run_at, cost
        from (select queue, '' as lane, run_at, 1 as cost from ready
              union all
              select queue, lane, run_at, coalesce(cost, 1) from in_lane) as one
        where backlog_seconds.queue is null or queue = backlog_seconds.queue
    ),
    key as materialized (  -- of each lane, and of each queue, those that have a limit
        select one.lane, one.text, coalesce(one.places, 1) as places, said.most, said.every, said.burst
        from (select distinct lane, regexp_replace(line, ' \*[1-9][0-9]{0,6}$', '') as text, split_part(line, ' ', 1) as name,
                     substring(line from ' \*([1-9][0-9]{0,6})$')::integer as places
              from first cross join string_to_table(lane, E'\n') as line where line <> ''
              union
              select distinct 'queue:' || queue, 'queue:' || queue, 'queue:' || queue, 1 from first) as one
        join pgqueue.limits as said on said.name = one.name
    ),
    held as (  -- as in limits/running
        select job.queue, job.lane from pgqueue.jobs as job
        where job.status = 'running' and job.lane is not null and job.worker_id is not null and exists (select from key where most is not null)
        union all
        select null, job.lane from pgqueue.jobs as job
        where job.place_at is not null and string_to_array(job.lane, E'\n') && array(select text from key where most is not null)
    ),
    taken as (
        select text, sum(places) as places
        from (select 'queue:' || queue as text, 1 as places from held
              union all
              select regexp_replace(line, ' \*[1-9][0-9]{0,6}$', ''), coalesce(substring(line from ' \*([1-9][0-9]{0,6})$')::integer, 1)
              from held cross join string_to_table(lane, E'\n') as line) as one
        group by text
    ),
    held_up as materialized (
        select first.number
        from first cross join clock
        cross join lateral (values (first.lane), ('queue:' || first.queue)) as by (lane)
        join key on key.lane = by.lane
        left join taken on taken.text = key.text
        left join pgqueue.rates as rate on rate.key = key.text
        where case when key.most is null  -- as in pgqueue/values/limits/gcra.py
                   then least(coalesce(rate.tat, 0), extract(epoch from clock.now) * 1000000 + key.burst * key.every)
                        + (least(greatest(first.cost, 1), key.burst) - key.burst) * key.every > extract(epoch from clock.now) * 1000000
                   else key.most = 0 or taken.places > key.most - key.places and taken.places > 0 end
    )
    select coalesce(max(greatest(extract(epoch from clock.now - pgqueue.as_datetime(first.run_at)), 0.001)),
                    case when exists (select from ready where place = 2000) or exists (select from in_lane where place = 2000)
                         then 0.001 else 0 end)::float8  -- not all were looked at: an autoscaler must not go down to 0
    from first cross join clock
    where first.queue not in (select name from pgqueue.queues where paused_at is not null)
      and first.number not in (select number from held_up)
$$;
comment on function pgqueue.backlog_seconds(text, timestamptz) is
    'How many seconds the job of this queue (null: of any) has waited that has waited longest and that one more worker could start; 0: there is none.';
