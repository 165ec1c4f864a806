-- Makes this database a shard of a queue: `pgqueue shards` runs it, not a migration, so a queue without shards pays for none of it.
-- docs/explain/shards.md explains the protocol. pgqueue/values/shards.py computes the same homes, and a test compares.

create table if not exists pgqueue.shard (
    number  integer   primary key check (number between 0 and 1023),
    members integer[] not null,
    moving  boolean   not null default false
);
create unique index if not exists shard_one_row on pgqueue.shard ((true));
comment on table pgqueue.shard is 'Which shard of a queue this database is: one row.';
comment on column pgqueue.shard.members is 'The shards on which keys live, in the order in which they were added.';
comment on column pgqueue.shard.moving is 'Keys are moving from here to the last member; or, there, from the others.';

-- callers: public
create or replace function pgqueue.shard_of(key text, members integer[]) returns integer
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select one from unnest(members) as one order by sha256(convert_to(one || ':' || key, 'UTF8')) desc limit 1
$$;
comment on function pgqueue.shard_of(text, integer[]) is 'The home of a key among these shards: rendezvous hashing.';

-- The index below calls it with the rights of the role that inserts.
-- callers: public
create or replace function pgqueue.shard_key(unique_key text, lane text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when lane is null or lane like ' %' then coalesce(unique_key, split_part(lane, E'\n', 1))
                else split_part(lane, E'\n', 1) end
$$;
comment on function pgqueue.shard_key(text, text) is 'What a job lives by: its first limit, else its unique key, else its share.';

-- Whether a key moves away, whether a job lives by it, are asked of these.
create index if not exists jobs_shard_key on pgqueue.jobs (pgqueue.shard_key(unique_key, lane))
    where unique_key is not null or lane is not null;

-- callers: owner
create or replace function pgqueue.lives_here(key text) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select exists (select from pgqueue.jobs
                   where pgqueue.shard_key(unique_key, lane) = key and (unique_key is not null or lane is not null))
        or exists (select from pgqueue.unique_holds where unique_key = key and held_until > clock_timestamp())
        or exists (select from pgqueue.rates where rates.key = lives_here.key
                   and tat > extract(epoch from clock_timestamp()) * 1000000)
        or exists (select from pgqueue.flows where flows.key = lives_here.key and ended_at is null)
$$;
comment on function pgqueue.lives_here(text) is 'Whether a job, a flow, a period or a rate of this database holds the key.';

-- The row is locked until the transaction ends, so that a change of the members waits for it; and waited for, if it changes.
-- callers: producer, worker, operator
create or replace function pgqueue.enter_shard(key text, arrives boolean) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    this pgqueue.shard;
    home integer;
    former integer;
begin
    select * into this from pgqueue.shard for share;
    if not found then
        return 'undeclared';
    end if;
    home := pgqueue.shard_of(key, this.members);
    former := case when this.moving then pgqueue.shard_of(key, trim_array(this.members, 1)) else home end;
    if home = former then
        return case when home = this.number then 'here' else 'elsewhere' end;
    elsif this.number = former then
        if current_setting('transaction_isolation') <> 'read committed' then
            return 'isolation';
        end if;
        perform pg_advisory_xact_lock(hashtextextended('pgqueue shard ' || key, 0));
        if not pgqueue.lives_here(key) then
            return 'gone';
        end if;
    elsif this.number <> home or not arrives then
        return 'elsewhere';
    end if;
    perform set_config('pgqueue.entered', concat(current_setting('pgqueue.entered', true), ' ',
                                                 encode(sha256(convert_to(key, 'UTF8')), 'hex')), true);
    return 'here';
end $$;
comment on function pgqueue.enter_shard(text, boolean) is
    'Whether a job with this key may be added here: here, gone (to the last member), elsewhere, isolation, undeclared.';

-- callers: owner
create or replace function pgqueue.guard_key(key text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    this pgqueue.shard;
    home integer;
begin
    select * into this from pgqueue.shard for share;
    home := pgqueue.shard_of(key, this.members);
    if this.moving and home <> pgqueue.shard_of(key, trim_array(this.members, 1)) then
        if strpos(coalesce(current_setting('pgqueue.entered', true), ''), encode(sha256(convert_to(key, 'UTF8')), 'hex')) > 0 then
            return;
        end if;
    elsif home = this.number then
        return;
    end if;
    raise exception using errcode = 'PQ001',
        message = format('the key %s lives on shard %s, and this is shard %s', quote_literal(left(key, 100)), home, this.number),
        hint = 'Enqueue through PgQueue(shards=...) with all shards in its list. To retry a dead job, retry it without its key.';
end $$;
comment on function pgqueue.guard_key(text) is 'Refuses a transaction that has added a job whose key lives on another shard.';

-- callers: trigger
create or replace function pgqueue.guard_job() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    key text;
begin
    select pgqueue.shard_key(unique_key, lane) into key from pgqueue.jobs where id = new.id;
    if key is not null then
        perform pgqueue.guard_key(key);
    end if;
    return null;
end $$;

-- callers: trigger
create or replace function pgqueue.guard_flow() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pgqueue.guard_key(new.key);
    return null;
end $$;

-- At the commit, when a job has its lane; whatever program, function or trigger has added it.
drop trigger if exists jobs_guard_added on pgqueue.jobs;
drop trigger if exists jobs_guard_changed on pgqueue.jobs;
drop trigger if exists flows_guard_added on pgqueue.flows;
create constraint trigger jobs_guard_added after insert on pgqueue.jobs deferrable initially deferred
    for each row when (new.unique_key is not null or new.lane is not null) execute function pgqueue.guard_job();
create constraint trigger jobs_guard_changed after update of unique_key, lane on pgqueue.jobs deferrable initially deferred
    for each row when ((new.unique_key is not null and new.unique_key is distinct from old.unique_key)
                       or (new.lane is not null and new.lane is distinct from old.lane))
    execute function pgqueue.guard_job();
create constraint trigger flows_guard_added after insert on pgqueue.flows deferrable initially deferred
    for each row when (new.key is not null) execute function pgqueue.guard_flow();

-- As in rights: what is not for public.
revoke execute on function
    pgqueue.lives_here(text), pgqueue.enter_shard(text, boolean), pgqueue.guard_key(text), pgqueue.guard_job(), pgqueue.guard_flow()
from public;

-- Roles that add jobs ask where they may; the function runs with its owner's rights. (`pgqueue grants` gives later roles the same.)
do $$
declare
    one record;
begin
    for one in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as role, privilege_type
        from pg_class, aclexplode(relacl)
        where pg_class.oid = 'pgqueue.jobs'::regclass and grantee <> relowner and privilege_type in ('SELECT', 'INSERT')
    loop
        execute format('grant select on pgqueue.shard to %s', one.role);
        if one.privilege_type = 'INSERT' then
            execute format('grant execute on function pgqueue.enter_shard(text, boolean) to %s', one.role);
        end if;
    end loop;
end $$;
