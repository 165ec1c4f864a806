-- connections/empty: delete all jobs and all that belongs to them, in a database for tests; what the schema needs stays.
-- index: none
-- locks: every table, alone
-- run by: testing.empty
-- rights: owner
do $$ begin
    execute (select 'truncate ' || string_agg(oid::regclass::text, ', ')
             from pg_class
             where relnamespace = (select relnamespace from pg_class where oid = 'pgqueue.jobs'::regclass) and relkind in ('r', 'p') and not relispartition
               and relname not in ('alembic_version', 'compatibility', 'retention', 'callback_key', 'series_state', 'shard'));
end $$
