-- pipeline/contracts: the contracts of tasks, of each task first the one that was said last.
-- index: none: up to 20 rows for each task
-- locks: none
-- run by: pipeline export, check, contracts; pgqueue.spark
-- rights: monitor
select task, hash, arguments::text, result::text, version, first_seen, last_seen
from pgqueue.task_contracts
where %(task)s::text is null or task = %(task)s::text
order by task, last_seen desc, hash
