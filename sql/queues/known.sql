-- queues/known: the queues that were paused, closed or given settings, with who paused them and why.
-- index: none: reads a row for each
-- locks: none
-- run by: Insight.queues
-- rights: monitor
select name, paused_at, paused_by, paused_why, closed_at, closed_by, closed_why,
       priority, max_attempts, extract(epoch from timeout)::float8, extract(epoch from keep_history)::float8, extract(epoch from keep_dead)::float8,
       backlog, when_full, extract(epoch from ageing)::float8, ageing_to
from pgqueue.queues
order by name
