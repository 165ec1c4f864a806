-- pipeline/sink_closed: a closed queue to which staged rows would go.
-- index: sink_rows_pkey
-- locks: none
-- run by: the sink, on the driver
-- rights: producer --also spark
select queue.name
from pgqueue.queues as queue
where queue.closed_at is not null
  and exists (select from pgqueue.sink_rows as staged
              where staged.attempt_id = any(%(attempts)s::uuid[]) and staged.queue = queue.name and staged.refusal is null)
order by queue.name
limit 1
