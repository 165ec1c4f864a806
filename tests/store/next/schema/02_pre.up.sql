-- A new table, a trigger that writes to it, and a function that is replaced.

create table pgqueue.obituaries (
    job_id   bigint      primary key,
    noted_at timestamptz not null default now()
);
comment on table pgqueue.obituaries is 'Jobs that died.';

-- callers: trigger
create function pgqueue.note_death() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into pgqueue.obituaries (job_id) values (new.id) on conflict do nothing;
    return null;
end $$;
create trigger dead_jobs_noted after insert on pgqueue.dead_jobs for each row execute function pgqueue.note_death();
revoke execute on function pgqueue.note_death() from public;

-- callers: worker, operator
create or replace function pgqueue.history_args() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((select history_args from pgqueue.retention), 4000)
$$;

-- What roles do to jobs, they may do to the new table.
do $$
declare
    one record;
begin
    for one in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name, privilege_type
        from pg_class, aclexplode(relacl)
        where pg_class.oid = 'pgqueue.jobs'::regclass and grantee <> relowner
          and privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    loop
        execute format('grant %s on pgqueue.obituaries to %s', one.privilege_type, one.name);
    end loop;
end $$;
