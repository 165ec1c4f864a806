-- signals/settle: admit jobs that began to wait for a signal while it was being sent; how many signals, and what was refused.
-- index: none (pgqueue.settle_signals uses signals_unsettled and waits_pkey)
-- locks: the schema's advisory lock of signals; those signals and jobs, skipping locked ones
-- run by: worker upkeep
-- rights: worker
select * from pgqueue.settle_signals(coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()), %(limit)s::integer)
