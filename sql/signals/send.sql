-- signals/send: store a signal, and admit the jobs that wait for it; what became of it.
-- index: none (pgqueue.send_signal uses signals_pkey and waits_pkey)
-- locks: the rows of the admitted jobs, in the order of their ids; the database-wide NOTIFY lock, at commit, if a worker is idle
-- run by: PgQueue.signal
-- rights: producer --also signals
select pgqueue.send_signal(%(target)s::text, %(name)s::text, %(payload)s::jsonb,
                           coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()))
