-- retention/make_history_day: give a day of the history its partition; says what came of it.
-- index: none
-- locks: the default partition, alone, and the history against other changes of its shape; waits for 100 ms at most
-- run by: worker upkeep
-- rights: worker
select pgqueue.make_history_day(%(day)s::date)
