-- pipeline/sink_leave: delete a write's attempts, except those that are staging rows at this moment.
-- index: none (a small table)
-- locks: the deleted rows; skips locked ones, because an abandoned attempt may hang for a long time
-- run by: the sink, on the driver
-- rights: producer --also spark
delete from pgqueue.sink_attempts as attempt
using (select id from pgqueue.sink_attempts where write_id = %(write)s::uuid for update skip locked) as resting
where attempt.id = resting.id
returning attempt.id
