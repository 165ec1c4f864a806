-- retention/drop_dead: delete dead jobs that are older than the stored retention, some at a time.
-- index: none (reads the dead jobs, where a retention is stored)
-- locks: the deleted rows, skipping locked ones
-- run by: worker upkeep
-- rights: worker
select pgqueue.drop_old_dead(coalesce(%(now)s::timestamptz, now()), %(limit)s::integer)
