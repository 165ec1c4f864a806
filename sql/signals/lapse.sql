-- signals/lapse: admit jobs whose deadline has passed; how many, and which of them were refused.
-- index: none (pgqueue.admit_lapsed uses waits_until)
-- locks: those jobs, skipping locked ones
-- run by: worker upkeep
-- rights: worker
select * from pgqueue.admit_lapsed(coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()), %(limit)s::integer)
