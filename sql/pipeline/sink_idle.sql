-- pipeline/sink_idle: delete the attempts of writes that have staged nothing for a given time: their driver was killed.
-- index: none (a small table)
-- locks: the deleted rows; skips locked ones
-- run by: the sink, on the driver, before it writes
-- rights: producer --also spark
delete from pgqueue.sink_attempts as attempt
using (select id from pgqueue.sink_attempts
       where write_id in (select write_id from pgqueue.sink_attempts group by write_id
                          having max(staged_at) < coalesce(%(now)s::timestamptz, now()) - %(idle)s::interval)
       for update skip locked) as resting
where attempt.id = resting.id
returning attempt.id
