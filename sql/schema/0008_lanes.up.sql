-- A role that may add jobs by columns may add them to their lanes, which COPY does from this revision on.

do $$
declare
    one record;
begin
    for one in
        select distinct case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
        from pg_attribute, aclexplode(attacl)
        where attrelid = 'pgqueue.jobs'::regclass and privilege_type = 'INSERT'
    loop
        execute format('grant insert (lane, in_lane, cost) on pgqueue.jobs to %s', one.name);
    end loop;
end $$;
