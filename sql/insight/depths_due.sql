-- insight/depths_due: the present minute, and whether no worker has noted yet how deep queues are in it.
-- index: series_depths_queue
-- locks: none
-- run by: worker upkeep
-- rights: monitor
select minute, not exists (select from pgqueue.series_depths where at = minute and queue is null)
from date_trunc('minute', coalesce(%(now)s::timestamptz, now())) as minute
