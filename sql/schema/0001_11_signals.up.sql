-- Signals: what programs outside of a job tell it. And callbacks: tokens that stand for a signal.

create table pgqueue.signals (
    target  text        not null check (length(target) between 1 and 300),
    name    text        not null check (length(name) between 1 and 200),
    payload jsonb,
    settled boolean     not null default false,
    sent_at timestamptz not null default now(),
    sent_by text,
    primary key (target, name)
);
comment on table pgqueue.signals is 'Signals that were sent: the first of each name to each target is kept, also if nothing waits for it yet.';
comment on column pgqueue.signals.name is 'The name of the signal. The first one of a name to a target counts.';
comment on column pgqueue.signals.payload is 'What was sent along; null: nothing.';
comment on column pgqueue.signals.sent_at is 'When it was sent.';
comment on column pgqueue.signals.sent_by is 'By which role.';
comment on column pgqueue.signals.target is 'What it was sent to: job:ID, flow:ID, or key:TEXT.';
comment on column pgqueue.signals.settled is
    'Whether a worker has admitted the jobs that began to wait for it while it was being sent; the sender admits the others.';
create index signals_unsettled on pgqueue.signals (sent_at) where not settled;

-- Refuses what cannot be sent, with the words of Python's errors.
-- callers: owner
create function pgqueue.check_signal(target text, name text, payload jsonb)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pgqueue.check_name('name', name);
    if target is null or char_length(target) > 300 or target !~ '^((job|flow):[1-9][0-9]{0,17}|key:.+)$' then
        raise check_violation using
            message = format('target => %L: use job:ID, flow:ID, or key:TEXT of at most 300 characters', left(target, 60));
    elsif octet_length(payload::text) > 1048576 then
        raise check_violation using
            message = format('payload: it takes %s bytes, over the limit of 1048576', octet_length(payload::text)),
            hint = 'Store it elsewhere and send a reference.';
    elsif not pgqueue.arguments_fit(payload::text::json) then
        raise check_violation using
            message = 'payload: use at most 200 levels, and whole numbers of at most 4300 digits',
            hint = 'Store it elsewhere and send a reference, or write a long number as a string.';
    end if;
end $$;

-- Stores a signal, and admits the jobs that wait for it: all that this transaction sees. Returns first, repeated (one of
-- this name was there), or gone (the job or flow has ended, or never was).
-- callers: worker, operator, producer:signals
create function pgqueue.send_signal(target text, name text, payload jsonb, at_time timestamptz)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    reason  constant text := 'signal:' || target || ':' || name;
    target_id bigint := case when target not like 'key:%' then substring(target from '[0-9]+$')::bigint end;
    waiting bigint[];
begin
    if exists (select from pgqueue.signals as sent where sent.target = send_signal.target and sent.name = send_signal.name) then
        return 'repeated';
    elsif target like 'job:%' and not exists (select from pgqueue.jobs where id = target_id)
       or target like 'flow:%' and not exists (select from pgqueue.flows where id = target_id and ended_at is null) then
        return 'gone';
    end if;
    insert into pgqueue.signals (target, name, payload, sent_at, sent_by)
    values (send_signal.target, send_signal.name, send_signal.payload, at_time, session_user)
    on conflict do nothing;
    if not found then
        return 'repeated';
    end if;
    waiting := array(select id from pgqueue.jobs
                     where id = any(array(select job_id from pgqueue.waits where waits_for = reason)) and status = 'blocked'
                     order by id for update);
    delete from pgqueue.waits where waits_for = reason and job_id = any(waiting);
    perform pgqueue.admit_free(waiting, at_time);
    return 'first';
end $$;

-- For triggers and other languages: sends a signal; whether it was the first of this name to this target.
-- callers: worker, operator, producer:signals
create function pgqueue.signal(target text, name text, payload jsonb default null)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    said text;
begin
    perform pgqueue.check_signal(target, name, payload);
    said := pgqueue.send_signal(target, name, payload, clock_timestamp());
    if said = 'gone' then
        raise no_data_found using message = format('%s has ended, or never was: signal %L was not sent', target, name);
    end if;
    return said = 'first';
end $$;

-- Admits the jobs that began to wait for a signal while it was being sent: their worker did not see the signal, and the
-- sender did not see that they wait. A worker that blocks a job holds the lock shared: each one either has committed
-- before this looks, or looks after this and sees the signal.
-- callers: worker
create function pgqueue.settle_signals(at_time timestamptz, most integer, out settled integer, out refused bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    places  tid[];
    reasons text[];
    waiting bigint[];
begin
    perform pg_advisory_xact_lock(hashtext('pgqueue.signals'));
    with unsettled as (
        select ctid, target, name from pgqueue.signals where not signals.settled order by sent_at limit most for update skip locked
    )
    select array_agg(ctid), array_agg('signal:' || target || ':' || name) into places, reasons from unsettled;
    waiting := array(select id from pgqueue.jobs
                     where id = any(array(select job_id from pgqueue.waits where waits_for = any(reasons))) and status = 'blocked'
                     order by id for update skip locked);
    delete from pgqueue.waits
    where waits_for = any(reasons)
      and (job_id = any(waiting) or not exists (select from pgqueue.jobs where id = job_id and status = 'blocked'));
    select free.refused into settle_signals.refused from pgqueue.admit_free(waiting, at_time) as free;
    update pgqueue.signals as sent set settled = true
    where ctid = any(places) and not exists (select from pgqueue.waits
                                             where waits_for = 'signal:' || sent.target || ':' || sent.name);
    get diagnostics settled = row_count;
end $$;

-- The secret behind the tokens of callbacks: a key for HMAC with SHA-256, kept as the two blocks that HMAC makes of it.
-- Only functions that run with the owner's rights read it.
create table pgqueue.callback_key (
    only_one    boolean primary key default true check (only_one),
    inner_block bytea   not null,
    outer_block bytea   not null
);
comment on table pgqueue.callback_key is 'The secret behind the tokens of callbacks. Do not grant anyone the right to read it.';
comment on column pgqueue.callback_key.only_one is 'True: there is no other row.';
comment on column pgqueue.callback_key.inner_block is 'The key, as the first of the two blocks that HMAC-SHA256 makes of it.';
comment on column pgqueue.callback_key.outer_block is 'The second of these blocks.';

-- callers: owner
create function pgqueue.renew_callback_key() returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    key     constant bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    inner_b bytea := decode(repeat('36', 64), 'hex');
    outer_b bytea := decode(repeat('5c', 64), 'hex');
begin
    for place in 0 .. 31 loop
        inner_b := set_byte(inner_b, place, get_byte(key, place) # 54);
        outer_b := set_byte(outer_b, place, get_byte(key, place) # 92);
    end loop;
    insert into pgqueue.callback_key (inner_block, outer_block) values (inner_b, outer_b)
    on conflict (only_one) do update set inner_block = excluded.inner_block, outer_block = excluded.outer_block;
end $$;
comment on function pgqueue.renew_callback_key() is 'Makes a new secret: no token that was made before is valid any more.';
select pgqueue.renew_callback_key();

-- A token is BODY.MAC: what it resolves, and HMAC-SHA256 of that, both in base64 for URLs.
-- callers: owner
create function pgqueue.callback_mac(body text) returns text language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select translate(encode(sha256(outer_block || sha256(inner_block || convert_to(body, 'UTF8'))), 'base64'), E'+/=\n', '-_')
    from pgqueue.callback_key
$$;

-- callers: worker
create function pgqueue.callback_token(job_id bigint, name text, until timestamptz) returns text language plpgsql stable
security definer set search_path = pg_catalog, pg_temp as $$
declare
    said constant text := format('%s:%s:%s', job_id, ceil(extract(epoch from until))::bigint, name);
    body constant text := translate(encode(convert_to(said, 'UTF8'), 'base64'), E'+/=\n', '-_');
begin
    return body || '.' || pgqueue.callback_mac(body);
end $$;

-- Sends the signal that a token stands for. Returns what send_signal does; or invalid (no token of this schema), or
-- expired. The two MACs are compared by their MACs: the time that takes tells nothing about the right one.
-- callers: worker, operator, producer:signals
create function pgqueue.resolve_callback(token text, payload jsonb, at_time timestamptz)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    parts constant text[] := case when char_length(token) < 2000 then regexp_match(token, '^([A-Za-z0-9_-]+)[.]([A-Za-z0-9_-]{43})$') end;
    said  text[];
begin
    if parts is null or pgqueue.callback_mac(parts[2]) <> pgqueue.callback_mac(pgqueue.callback_mac(parts[1])) then
        return 'invalid';
    end if;
    said := regexp_match(convert_from(decode(translate(parts[1], '-_', '+/') || repeat('=', -length(parts[1]) & 3), 'base64'), 'UTF8'),
                         '^([0-9]+):([0-9]*):(.+)$');
    if to_timestamp(nullif(said[2], '')::float8) < at_time
       and not exists (select from pgqueue.signals where target = 'job:' || said[1] and name = said[3]) then
        return 'expired';
    end if;
    return pgqueue.send_signal('job:' || said[1], said[3], payload, at_time);
end $$;

-- For triggers and other languages: resolves a callback; whether it was the first time.
-- callers: worker, operator, producer:signals
create function pgqueue.resolve(token text, payload jsonb default null)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    said text;
begin
    perform pgqueue.check_signal('key:token', 'token', payload);
    said := pgqueue.resolve_callback(token, payload, clock_timestamp());
    if said = 'invalid' then
        raise invalid_parameter_value using message = 'this is no token of a callback of this queue';
    elsif said in ('expired', 'gone') then
        raise no_data_found using message = 'the token has expired, or its job has ended';
    end if;
    return said = 'first';
end $$;
