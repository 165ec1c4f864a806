-- signals/lock: keep signals from being settled until this transaction ends.
-- index: none
-- locks: the schema's advisory lock of signals, shared
-- run by: worker completer, worker upkeep, take
select pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtext('pgqueue.signals'))
