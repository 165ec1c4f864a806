-- connections/database_name: the name of the database that answers.
-- index: none
-- locks: none
-- run by: pgqueue.testing.drain
select current_database()::text
