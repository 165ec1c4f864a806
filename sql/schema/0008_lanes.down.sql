-- The rights to columns of lanes.

do $$
declare
    one record;
begin
    for one in
        select distinct case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
        from pg_attribute, aclexplode(attacl)
        where attrelid = 'pgqueue.jobs'::regclass and attname = 'lane' and privilege_type = 'INSERT'
    loop
        execute format('revoke insert (lane, in_lane, cost) on pgqueue.jobs from %s', one.name);
    end loop;
end $$;
