-- What a column may hold, and how a value that a user gives becomes one that Python and PostgreSQL both read.

-- A domain says it, not a check of the table. A check would be read and planned anew by every single insert: four of them took as
-- long as the trigger and both index entries together.
create domain pgqueue.priority as smallint check (value between -100 and 100);
create domain pgqueue.allowance as smallint check (value > 0);
create domain pgqueue.live_status as text check (value in ('blocked', 'scheduled', 'ready', 'running'));
-- Arguments pass through: as json they are stored and read as they came, which takes a sixth off an insert by COPY. What
-- jsonb would refuse (NUL, half a surrogate pair) is an escape, so they can be made jsonb wherever they are asked for.
-- Their length is bounded here, too: a claim reads them into the worker's memory, in the way of every other job.
create domain pgqueue.arguments as json check (
    octet_length(value::text) <= 16777216
    and json_typeof(value) = 'object' and (strpos(value::text, '\u') = 0 or value::jsonb is not null)
);
-- What a claim, a log and a page read of each job. Names and keys are shorter, and so are meta and errors.
create domain pgqueue.short_text as text check (octet_length(value) <= 10000);
create domain pgqueue.short_json as jsonb check (pg_column_size(value) <= 1000000);

-- The tables take rows that are out of other bounds; the function pgqueue.enqueue and Python are the doors, and what reads the
-- rows bears them. A check costs every insert 10 µs, and looking into 1 kB of arguments 7 µs. See ADR 16.

-- callers: worker, operator
create function pgqueue.arguments_fit(args json) returns boolean language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp as $$
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
-- It reads no table.
-- callers: public
create function pgqueue.as_jsonb(args json) returns jsonb language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp as $$
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
comment on function pgqueue.as_jsonb(json) is 'The cast to jsonb; arguments with a number that jsonb cannot hold become one string, their text.';

-- A time as Python can hold it: what lies outside of its years is moved to the nearest day inside, in every time zone.
-- callers: public
create function pgqueue.as_datetime(at timestamptz) returns timestamptz language sql immutable parallel safe
set search_path = pg_catalog, pg_temp as $$
    select case when at < '0001-01-03 00:00+00' then '0001-01-03 00:00+00'
                when at > '9999-12-29 00:00+00' then '9999-12-29 00:00+00' else at end
$$;
comment on function pgqueue.as_datetime(timestamptz) is 'The time, or the nearest one that a datetime of Python can be.';

-- A text as an instant; null where it is none, or none that a program can do sums with.
-- callers: worker
create function pgqueue.instant(said text) returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
    meant timestamptz;
begin
    meant := said;
    return case when meant between '1900-01-01 00:00+00' and '9000-01-01 00:00+00' then meant end;
exception when data_exception then
    return null;
end $$;

-- Refuses a queue's or task's name that Python refuses, too: the same bounds at both doors.
-- callers: worker, operator
create function pgqueue.check_name(what text, name text) returns void language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp as $$
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
