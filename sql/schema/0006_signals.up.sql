-- Signals: what the world tells jobs and workflows that wait for it.

create table pgqueue.signals (
    target  text        not null check (length(target) between 1 and 300),
    name    text        not null check (length(name) between 1 and 200),
    payload jsonb,
    sent_at timestamptz not null default now(),
    sent_by text,
    primary key (target, name)
);
comment on table pgqueue.signals is 'Signals that were sent: the first of each name to each target is kept, also if nothing waits for it yet.';
comment on column pgqueue.signals.target is 'What it was sent to: job:ID, flow:ID, or key:TEXT.';
create index signals_sent_at on pgqueue.signals (sent_at);

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
        execute format('grant %s on pgqueue.signals to %s', right_to.privilege_type, right_to.name);
    end loop;
end $$;
