-- signals/resolve: send the signal that a token stands for; what became of it.
-- index: none (pgqueue.send_signal uses signals_pkey and waits_pkey)
-- locks: as signals/send
-- run by: PgQueue.resolve
-- rights: producer --also signals
select pgqueue.resolve_callback(%(token)s::text, %(payload)s::jsonb,
                                coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()))
