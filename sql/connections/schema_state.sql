-- connections/schema_state: the schema's revision, and the oldest code that may work on it.
-- index: none
-- locks: none
-- run by: every first connection
-- rights: ROLE
select (select version_num from pgqueue.alembic_version), (select oldest_code from pgqueue.compatibility)
