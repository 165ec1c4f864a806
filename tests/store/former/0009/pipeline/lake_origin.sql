-- pipeline/lake_origin: the identity of this database, independent of its name in the DSN.
-- index: none
-- locks: none
-- run by: pipeline export, verify, prune, status
select system.system_identifier::text, here.oid::bigint
from pg_control_system() as system, pg_database as here
where here.datname = current_database()
