-- Unique keys that are taken, and enqueueing by SQL.

-- Counts an enqueue on the job that holds the key, whose id it returns; null: no job holds it, or, where a waiting job takes the
-- new enqueue's contents and does not reject it, no running job does. With the owner's rights, so that an enqueuer need not change jobs.
-- Enqueuers of a key with a period lock its hold before its job; otherwise two enqueuers deadlock: one has the job's row and wants
-- the hold, the other has the hold and waits for the row.
-- callers: producer, worker, operator
create function pgqueue.count_collision(key text, holds boolean, rejects boolean) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    job_id bigint;
begin
    if holds then
        perform from pgqueue.unique_holds where unique_key = key for no key update;
    end if;
    update pgqueue.jobs set collisions = collisions + 1
    where unique_key = key and (rejects or status = 'running')
    returning id into job_id;
    return job_id;
end $$;

-- For triggers and other languages. Returns the job's id; on a taken unique key the holder's id. With the owner's rights, so that
-- an enqueuer need not read the tables. What neither the caller nor the defaults of the function say is said by the queue.
-- callers: producer, worker, operator
create function pgqueue.enqueue(
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
    elsif octet_length(enqueue.args::text) > 1048576 then
        raise check_violation using
            message = format('args: they take %s bytes, over the limit of 1048576', octet_length(enqueue.args::text)),
            hint = 'Store them elsewhere and enqueue a reference.';
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
    if setting.closed_at is not null then
        raise check_violation using
            message = format('queue => %L: this queue is closed, it takes no new jobs', enqueue.queue),
            hint = 'pgqueue.queues says who closed it and why; pgqueue.resume_queue ends it.';
    elsif setting.backlog is not null and pgqueue.is_full(enqueue.queue, 1) then
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
        job_id := pgqueue.count_collision(enqueue.unique_key, false, true);
        exit when job_id is not null;  -- else the holder ended between the two statements: once more
    end loop;
    if exists (select from pgqueue.limited_tasks as limited where limited.task = enqueue.task) then
        perform pgqueue.put_in_lanes(array[job_id]);
    end if;
    return job_id;
end $$;

-- What workers say of their tasks when they start, for programs that enqueue by name. The worker that started last has said it.
create table pgqueue.known_tasks (
    task         text        primary key,
    queue        text        not null,
    priority     smallint,
    max_attempts integer,
    arguments    jsonb       not null,
    result       jsonb,
    said_at      timestamptz not null default now()
);
comment on table pgqueue.known_tasks is 'The tasks of the workers that have started: their queues and the types of their arguments.';
comment on column pgqueue.known_tasks.task is 'The name of a task, or a former name.';
comment on column pgqueue.known_tasks.queue is 'The queue of its jobs, where the enqueue does not name one.';
comment on column pgqueue.known_tasks.said_at is 'When this was stored.';
comment on column pgqueue.known_tasks.priority is 'What their jobs have, where the enqueue does not say; null: what the queue says.';
comment on column pgqueue.known_tasks.max_attempts is 'The same.';
comment on column pgqueue.known_tasks.arguments is 'A JSON schema of the object that has the arguments by name.';
comment on column pgqueue.known_tasks.result is 'A JSON schema of what it returns; null: not said.';

-- Each form that a task's arguments and result have had, for readers of its jobs: workers of two releases may run at the same time, and
-- jobs of an earlier one are in the history. Of json, since jsonb does not keep the order of the parameters.
create table pgqueue.task_contracts (
    task       text        not null,
    hash       text        not null,
    arguments  json        not null,
    result     json,
    version    text,
    first_seen timestamptz not null,
    last_seen  timestamptz not null,
    primary key (task, hash)
);
comment on table pgqueue.task_contracts is 'The types of arguments and results of the tasks of the workers that have started: each form, up to 20 of a task.';
comment on column pgqueue.task_contracts.task is 'The name of a task, or a former name.';
comment on column pgqueue.task_contracts.hash is 'Of both schemas: the same types have the same hash.';
comment on column pgqueue.task_contracts.arguments is 'A JSON schema of the object that has the arguments by name.';
comment on column pgqueue.task_contracts.result is 'A JSON schema of what it returns; null: not said.';
comment on column pgqueue.task_contracts.version is 'The last deploy in `deploys` when a worker first said this; null: there was none.';
comment on column pgqueue.task_contracts.first_seen is 'When a worker first said this.';
comment on column pgqueue.task_contracts.last_seen is
    'When a worker last said this, to the hour. The contract of a task is the one with the latest time.';

-- With the owner's rights: a producer reads neither of the two tables.
-- callers: worker, operator, producer
create function pgqueue.known_task(task text, args jsonb)
returns table (queue text, priority smallint, max_attempts integer, arguments text, lane text, cost integer)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select known.queue, known.priority, known.max_attempts, known.arguments::text, place.lane, place.cost
    from (select known_task.task) as named
    left join pgqueue.known_tasks as known on known.task = named.task
    left join pgqueue.limited_tasks as limited on limited.task = named.task
    left join lateral pgqueue.place_of(limited, known_task.args) as place on limited.task is not null
$$;
comment on function pgqueue.known_task(text, jsonb) is 'What workers have said of a task, and the lane of a job of it with these arguments.';
