-- pipeline/sink_drained: a drained queue to which staged rows would go.
-- index: sink_rows_pkey
-- locks: none
-- run by: the sink, on the driver
select queue.name
from pgqueue.queues as queue
where queue.drained_at is not null
  and exists (select from pgqueue.sink_rows as staged
              where staged.attempt_id = any(%(attempts)s::uuid[]) and staged.queue = queue.name)
order by queue.name
limit 1
