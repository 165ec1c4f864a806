-- connections/bound_idle: have the server end this transaction if it waits this long for its next statement, or for its answer to be read.
-- index: none
-- locks: none
-- run by: workers and takes behind a pooler, at the start of a transaction
-- why: behind a pooler no connection starts with settings of ours. The pooler keeps the transaction of a client that has
--      gone silent, and with it the locks of limits, schedules and jobs that other workers pass over
select pg_catalog.set_config('idle_in_transaction_session_timeout', %(idle)s::text, true),
       pg_catalog.set_config('tcp_user_timeout', %(unread)s::text, true)
