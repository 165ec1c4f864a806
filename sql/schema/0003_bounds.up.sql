-- Bounds on what SQL may enqueue, and reading rows that were enqueued before there were any.

-- The table itself takes what it took: the function below and Python are the doors, and what reads the rows bears what is
-- out of bounds. A domain for queue, run_at or unique_key would have PostgreSQL build three partial indices anew, under a
-- lock that shuts out every enqueue; a check costs every insert 10 µs, and looking into 1 kB of arguments 7 µs. See ADR 16.

-- Whether Python reads these arguments: at most 200 levels, no whole number of more than 4,300 digits.
create function pgqueue.arguments_fit(args json) returns boolean language plpgsql immutable parallel safe as $$
declare
    written text := args::text;
    depth   integer := 0;
begin
    if octet_length(written) - octet_length(replace(replace(written, '[', ''), '{', '')) > 200 then
        written := regexp_replace(regexp_replace(written, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]+', '', 'g');
        written := translate(written, '{}', '[]');
        while written <> '' loop  -- each turn takes away the innermost level
            depth := depth + 1;
            if depth > 200 then
                return false;
            end if;
            written := replace(written, '[]', '');
        end loop;
        written := args::text;
    end if;
    if octet_length(written) > 4300 and written ~ '[0-9]{250}' then
        written := regexp_replace(written, '"(?:[^"\\]|\\.)*"', '', 'g');
        return not exists (select from regexp_split_to_table(written, '[^0-9]+') as digits where length(digits) > 4300);
    end if;
    return true;
end $$;
comment on function pgqueue.arguments_fit(json) is
    'Whether Python reads these arguments: at most 200 levels, no whole number of more than 4,300 digits.';

-- The cast to jsonb that cannot fail: json takes numbers that jsonb does not (1e400000). Those arguments become one string.
create function pgqueue.as_jsonb(args json) returns jsonb language plpgsql immutable strict parallel safe as $$
declare
    written text := args::text;
begin
    if length(written) > 10000 or written ~ '[0-9][eE][+-]?[0-9]{5}' then
        written := regexp_replace(written, '"(?:[^"\\]|\\.)*"', '', 'g');
        if written ~ '[0-9][eE][+-]?[0-9]{5}'
           or exists (select from regexp_split_to_table(written, '[^0-9.]+') as digits where length(digits) > 10000) then
            return to_jsonb(args::text);
        end if;
    end if;
    return args::jsonb;
end $$;
comment on function pgqueue.as_jsonb(json) is
    'The cast to jsonb; arguments with a number that jsonb cannot hold become one string, their text.';

-- A time as Python can hold it: what lies outside of its years is moved to the nearest day inside, in every time zone.
create function pgqueue.as_datetime(at timestamptz) returns timestamptz language sql immutable parallel safe as $$
    select case when at < '0001-01-03 00:00+00' then '0001-01-03 00:00+00'
                when at > '9999-12-29 00:00+00' then '9999-12-29 00:00+00' else at end
$$;
comment on function pgqueue.as_datetime(timestamptz) is 'The time, or the nearest one that a datetime of Python can be.';

create or replace view pgqueue.all_jobs as
    select id, status::text as state, queue, task, pgqueue.as_jsonb(args) as args, priority::smallint, run_at, created_at,
           claimed_at as started_at, null::timestamptz as ended_at, attempts, max_attempts::smallint,
           unique_key, collisions, worker_id, errors,
           null::text as reason, null::jsonb as result
    from pgqueue.jobs
    union all
    select id, 'dead', queue, task, args, priority, run_at, created_at, started_at,
           died_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, reason, null
    from pgqueue.dead_jobs
    union all
    select id, outcome, queue, task, pgqueue.as_jsonb(args), priority, run_at, created_at, started_at,
           finished_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, null, result
    from pgqueue.job_history;

-- Refuses a queue's or task's name that Python refuses, too: the same bounds at both doors.
create function pgqueue.check_name(what text, name text) returns void language plpgsql immutable parallel safe as $$
begin
    if name is null or name = '' or char_length(name) > 200 or octet_length(name) > 249 then
        raise check_violation using
            message = format('%s => %L: a name has 1 to 200 characters and at most 249 bytes', what, left(name, 60));
    elsif name ~ '[[:space:],:\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]' then
        raise check_violation using message = format('%s => %L: a name has no white space, comma or colon in it', what, name);
    elsif name = '__HIVE_DEFAULT_PARTITION__' then
        raise check_violation using message = format('%s => %L: this name stands for no name in a lake; use another', what, name);
    end if;
end $$;
comment on function pgqueue.check_name(text, text) is 'Refuses what cannot be the name of a queue or a task.';

-- For triggers and other languages. Returns the job's id; on a taken unique key the holder's id.
create or replace function pgqueue.enqueue(
    task         text,
    args         jsonb       default '{}',
    queue        text        default 'default',
    priority     integer     default 0,
    run_at       timestamptz default null,
    max_attempts integer     default 25,
    unique_key   text        default null
) returns bigint language plpgsql as $$
declare
    job_id bigint;
begin
    perform pgqueue.check_name('task', enqueue.task), pgqueue.check_name('queue', enqueue.queue);
    if enqueue.priority is null or enqueue.priority not between -100 and 100 then
        raise check_violation using message = format('priority => %s: use a whole number from -100 to 100', enqueue.priority);
    elsif enqueue.max_attempts is null or enqueue.max_attempts not between 1 and 32767 then
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
    elsif not pgqueue.arguments_fit(enqueue.args::text::json) then
        raise check_violation using
            message = 'args: use at most 200 levels, and whole numbers of at most 4300 digits',
            hint = 'Store them elsewhere and enqueue a reference, or write a long number as a string.';
    end if;
    loop
        insert into pgqueue.jobs as job (queue, task, args, priority, status, run_at, max_attempts, unique_key)
        values (enqueue.queue, enqueue.task, enqueue.args, enqueue.priority,
                case when enqueue.run_at > now() then 'scheduled' else 'ready' end,
                coalesce(enqueue.run_at, now()), enqueue.max_attempts, enqueue.unique_key)
        on conflict do nothing
        returning job.id into job_id;
        exit when job_id is not null;
        update pgqueue.jobs as job set collisions = job.collisions + 1
        where job.unique_key = enqueue.unique_key
        returning job.id into job_id;
        exit when job_id is not null;  -- else the holder ended between the two statements: once more
    end loop;
    return job_id;
end $$;

-- The key of Unique(by=...), for triggers and other languages; pgqueue/values/unique.py makes the same, and a test compares.

-- Canonical JSON: keys in the order of their code points, no white space, numbers in plain notation without zeros at the end
-- of a fraction.
create function pgqueue.canonical_json(value jsonb) returns text language plpgsql immutable strict parallel safe as $$
begin
    case jsonb_typeof(value)
        when 'object' then
            return '{' || coalesce((
                select string_agg(to_jsonb(key)::text || ':' || pgqueue.canonical_json(member), ',' order by key collate "C")
                from jsonb_each(value) as members (key, member)
            ), '') || '}';
        when 'array' then
            return '[' || coalesce((
                select string_agg(pgqueue.canonical_json(item), ',' order by place)
                from jsonb_array_elements(value) with ordinality as items (item, place)
            ), '') || ']';
        when 'number' then
            return trim_scale((value #>> '{}')::numeric)::text;
        else
            return value::text;
    end case;
end $$;
comment on function pgqueue.canonical_json(jsonb) is 'JSON in one form only, so that equal values have equal texts.';

create function pgqueue.unique_key(task text, args jsonb, by text[]) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog as $$
declare
    named text := pgqueue.canonical_json(
        (select coalesce(jsonb_object_agg(key, value), '{}') from jsonb_each(args) where key = any(by)));
begin
    if octet_length(convert_to(named, 'UTF8')) <= 200 then
        return task || named;
    end if;
    return task || '#' || encode(sha256(convert_to(named, 'UTF8')), 'hex');
end $$;
comment on function pgqueue.unique_key(text, jsonb, text[]) is
    'The key that Unique(by=...) makes from a task and the arguments of these names.';
