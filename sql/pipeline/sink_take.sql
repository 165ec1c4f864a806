-- pipeline/sink_take: remove and return the next staged rows that have a unique key, in the order of the keys.
-- index: sink_rows_pkey
-- locks: the removed rows
-- run by: the sink, on the driver, where a key has a period or a policy other than reject
-- rights: producer --also spark
delete from pgqueue.sink_rows as staged
using (select waiting.attempt_id, waiting.place, attempt.partition
       from pgqueue.sink_rows as waiting
       join pgqueue.sink_attempts as attempt on attempt.id = waiting.attempt_id
       where waiting.attempt_id = any(%(attempts)s::uuid[]) and waiting.unique_key is not null
         and waiting.refusal is null
       order by waiting.unique_key collate "C", attempt.partition, waiting.place
       limit %(limit)s::integer) as next
where staged.attempt_id = next.attempt_id and staged.place = next.place
returning staged.unique_key, next.partition, staged.place, staged.queue, staged.args::text, staged.priority,
          staged.max_attempts, staged.run_at, staged.meta::text, staged.lane, staged.cost
