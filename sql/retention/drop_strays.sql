-- retention/drop_strays: delete rows of the history's default partition that are older than the stored retention, some at a time.
-- index: none (the default partition is empty, unless no worker ran for a week)
-- locks: the deleted rows
-- run by: worker upkeep
-- rights: worker
select pgqueue.drop_old_strays(coalesce(%(now)s::timestamptz, now()), %(limit)s::integer)
