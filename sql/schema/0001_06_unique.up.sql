-- Unique keys: those that are kept for a period, and how a key is made of arguments. The index jobs_unique_key holds the others.

create table pgqueue.unique_holds (
    unique_key text        primary key,
    job_id     bigint      not null,
    held_until timestamptz not null
);
comment on table pgqueue.unique_holds is 'Unique keys kept for a period, whether or not their job has ended.';
comment on column pgqueue.unique_holds.unique_key is 'A key that is kept for a period.';
comment on column pgqueue.unique_holds.job_id is 'The job that took it.';
comment on column pgqueue.unique_holds.held_until is 'No other job takes the key before this instant.';

-- The key of Unique(by=...), for triggers and other languages; pgqueue/values/jobs/unique.py makes the same, and a test compares.

-- Canonical JSON: keys in the order of their code points, no white space, numbers in plain notation without zeros at the end
-- of a fraction.
-- callers: public
create function pgqueue.canonical_json(value jsonb) returns text language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp as $$
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

-- callers: public
create function pgqueue.unique_key(task text, args jsonb, by text[]) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    named text := pgqueue.canonical_json(
        (select coalesce(jsonb_object_agg(key, value), '{}') from jsonb_each(args) where key = any(by)));
begin
    if octet_length(convert_to(named, 'UTF8')) <= 200 then
        return task || named;
    end if;
    return task || '#' || encode(sha256(convert_to(named, 'UTF8')), 'hex');
end $$;
comment on function pgqueue.unique_key(text, jsonb, text[]) is 'The key that Unique(by=...) makes from a task and the arguments of these names.';
