-- What blocked jobs wait for.

-- A table of its own, not a column of jobs: a job can wait for several things at once; an index of blocked jobs would have
-- to read all jobs while no other transaction may have them open; and jobs that wait for nothing are as they were.
create table pgqueue.waits (
    waits_for text   not null,
    job_id    bigint not null,
    primary key (waits_for, job_id)
);
comment on table pgqueue.waits is 'What each blocked job waits for; a job is ready, or scheduled, when the last of its rows is removed.';
comment on column pgqueue.waits.waits_for is 'The name of what has to happen first. The feature that blocks the job gives it and knows it.';
create index waits_job_id on pgqueue.waits (job_id);

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
        execute format('grant %s on pgqueue.waits to %s', right_to.privilege_type, right_to.name);
    end loop;
end $$;
