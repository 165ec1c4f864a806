-- retention/cuts: of each queue with a length of its own, and of the others together (null): the length, and up to which day the history was cleared of their jobs.
-- index: none: reads a row for each queue with settings
-- locks: none
-- run by: worker upkeep
-- rights: monitor
select null as queue, history::text as length, history_cut::text as cut from pgqueue.retention
union all
select name, keep_history::text, history_cut::text from pgqueue.queues where keep_history > '0'
