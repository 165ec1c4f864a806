-- connections/schema_state: the schema's revision, the oldest code that may work on it, and a table whose rows row-level security hides from this role.
-- index: none
-- locks: none
-- run by: every first connection
-- rights: ROLE
select (select version_num from pgqueue.alembic_version), (select oldest_code from pgqueue.compatibility),
       (select min(relname) from pg_class
        where relnamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass) and relrowsecurity and row_security_active(oid)
          and not exists (select from pg_policy where polrelid = pg_class.oid))
