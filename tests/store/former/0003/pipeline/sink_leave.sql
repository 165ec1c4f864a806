-- pipeline/sink_leave: forget a write's tries at its partitions, but for those that are staging rows at this moment.
-- index: none (a small table)
-- locks: the forgotten rows; waits for nobody, since a try that is of no use any more may hang for long
-- run by: the sink, on the driver
delete from pgqueue.sink_attempts as attempt
using (select id from pgqueue.sink_attempts where write_id = %(write)s::uuid for update skip locked) as resting
where attempt.id = resting.id
returning attempt.id
